import { duration } from '../lib/format.js';
import { plain } from '../lib/untrusted.js';
import type { SessionLog, Stage } from './session-log.js';

const NAMES: Readonly<Record<string, string>> = {
  create_sprite: 'Create the sandbox',
  network_policy: 'Apply the network policy',
  env_file: 'Write the environment',
  git_credentials: 'Set up git credentials',
  provision_setup: 'Set up packages and repositories',
  mcp_config: 'Configure tool servers',
  skills: 'Install skills',
  runtime_start: 'Start the agent',
};

/** One row per stage, with a bar for its duration. Failed stages show why. */
export function Timeline({ log }: { log: SessionLog }) {
  const { stages } = log;
  if (stages.length === 0) return null;
  const longest = Math.max(1, ...stages.map(({ durationMs }) => durationMs ?? 0));
  const total = stages.reduce((sum, { durationMs }) => sum + (durationMs ?? 0), 0);
  const failed = stages.find(({ state }) => state === 'failed');
  const active = log.connection.state !== 'ended' && stages.at(-1)?.name !== 'runtime_start';
  return (
    <details class="timeline" open={failed !== undefined || active}>
      <summary>
        Provisioning <span class="quiet number">{duration(total)}</span>
        {failed && <span class="bad"> · {nameOf(failed)} failed</span>}
      </summary>
      <ol>
        {stages.map((stage) => (
          <li key={stage.id} class={stage.state}>
            <span class="stage-name">{nameOf(stage)}</span>
            <span class="bar">
              <span style={{ width: `${(100 * (stage.durationMs ?? 0)) / longest}%` }} />
            </span>
            <span class="number">{timeOf(stage, log)}</span>
            {stage.message !== undefined && <p class="bad">{plain(stage.message)}</p>}
          </li>
        ))}
      </ol>
    </details>
  );
}

const nameOf = ({ name }: Stage): string => NAMES[name] ?? name;

function timeOf({ name, state, durationMs }: Stage, log: SessionLog): string {
  if (durationMs !== undefined) return duration(durationMs);
  if (name === 'runtime_start') return 'started';
  return state === 'started' && log.connection.state !== 'ended' ? 'running…' : '';
}
