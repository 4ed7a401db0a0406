import type { Clock } from '../common/clock.js';
import type { StageEvent, StageName } from '../event-log/log-row.js';
import { SandboxError } from '../sandboxes/sandbox-error.js';
import type { TurnProgress } from '../sessions/turn-lease.repository.js';
import { TurnTimeout } from './interruptions.js';
import type { TurnSandbox } from './leased-driver.js';
import { networkPolicyOf } from './network-policy.js';
import { needsWritableRoot, provisionScripts } from './provision-script.js';
import type { Redactor } from './redactor.js';
import { envFile, gitCredentialFiles, gitSkillScript, inlineSkillFiles } from './sandbox-files.js';
import type { TurnPlan } from './turn-plan.js';

const MAX_MESSAGE = 400;

/** A stage failed; the message is short, redacted and for clients. */
export class StageFailed extends Error {
  constructor(
    readonly stage: StageName,
    message: string,
  ) {
    super(message);
  }
}

export type StageResult = 'done' | 'failed';

interface Step {
  name: StageName;
  when: boolean;
  run: () => Promise<void>;
}

/** Makes a session's sandbox ready for its first turn, stage by stage. */
export class Provisioner {
  constructor(
    private readonly context: {
      /**
       * Was the sandbox made before the session? Then it has what all sessions like this install, and their kind of
       * network, and no more.
       */
      adopted: boolean;
      plan: TurnPlan;
      driver: TurnSandbox;
      redactor: Redactor;
      progress: TurnProgress;
      clock: Clock;
      signal: AbortSignal;
      /** Writes an event to the log, together with the progress. */
      emit: (event: StageEvent) => void;
      /** Told of every stage that has run. */
      ended: (stage: StageName, result: StageResult, durationMs: number) => void;
    },
  ) {}

  /** Runs what is not done yet. @throws StageFailed, or the signal's reason. */
  async provision(): Promise<void> {
    for (const step of this.steps()) {
      if (step.when) await this.run(step);
    }
  }

  private steps(): Step[] {
    const { plan, driver, adopted, signal } = this.context;
    const { sandboxId } = plan;
    const { runtime, runtimeTurn, environment, repositories, skills } = plan;
    const layout = runtimeTurn.layout;
    const limited = environment?.networking.type === 'limited';
    const input = {
      layout,
      packages: environment?.packages ?? [],
      setupScript: environment?.setupScript ?? '',
      repositories,
    };
    const network = { mode: limited ? 'limited' : 'unrestricted', allowedHosts: [] } as const;
    const writableRoot = needsWritableRoot(input);
    return [
      {
        name: 'create_sprite',
        when: true,
        run: async () => {
          if (!adopted) await driver.create({ sandboxId, signal, writableRoot, network });
        },
      },
      {
        name: 'network_policy',
        when: limited,
        run: async () => {
          const policy = await networkPolicyOf(plan, () => driver.packageHosts({ signal }));
          await driver.restrictNetwork({ sandboxId, signal, network: policy });
        },
      },
      {
        name: 'env_file',
        when: true,
        run: async () => {
          const files = runtime.settingsFiles(runtimeTurn);
          if (environment && Object.keys(environment.envVars).length > 0) {
            files.push(envFile(layout, environment.envVars));
          }
          if (files.length > 0) await driver.writeFiles({ sandboxId, signal, files });
        },
      },
      {
        name: 'git_credentials',
        when: repositories.some((repository) => repository.token !== undefined),
        run: () =>
          driver.writeFiles({ sandboxId, signal, files: gitCredentialFiles(layout, repositories) }),
      },
      {
        name: 'provision_setup',
        when: true,
        run: async () => {
          for (const { script, reusable } of provisionScripts(input)) {
            if (!(adopted && reusable)) await this.script(script, 'setup', reusable);
          }
          const { programs } = runtime;
          if (programs.length > 0 && !adopted)
            await driver.providePrograms({ sandboxId, signal, programs });
        },
      },
      {
        name: 'mcp_config',
        when: runtimeTurn.mcpServers.length > 0,
        run: () => driver.writeFiles({ sandboxId, signal, files: runtime.mcpFiles(runtimeTurn) }),
      },
      {
        name: 'skills',
        when: skills.length > 0,
        run: async () => {
          const folder = runtime.skillsFolder(layout);
          const files = skills.flatMap((skill) =>
            'content' in skill ? inlineSkillFiles(folder, skill) : [],
          );
          if (files.length > 0) await driver.writeFiles({ sandboxId, signal, files });
          for (const skill of skills) {
            if ('url' in skill) await this.script(gitSkillScript(folder, skill), 'agent');
          }
        },
      },
    ];
  }

  private async run({ name, run }: Step): Promise<void> {
    const { progress, clock, signal, emit, ended } = this.context;
    const stages = (progress.stages ??= {});
    const before = stages[name];
    if (before?.doneAt !== undefined) return;
    signal.throwIfAborted();
    const begun = clock.monotonic();
    if (!before) {
      stages[name] = { startedAt: clock.now() };
      emit({ stage: name, state: 'started' });
    }
    // A stage that a predecessor began has lasted since then.
    const elapsed = (): number =>
      Math.max(0, Math.round(before ? clock.now() - before.startedAt : clock.monotonic() - begun));
    try {
      await run();
      signal.throwIfAborted();
    } catch (error) {
      const timedOut = signal.reason instanceof TurnTimeout;
      if (signal.aborted && !timedOut) throw signal.reason;
      const message = this.describe(timedOut ? signal.reason : error);
      const durationMs = elapsed();
      emit({ stage: name, state: 'failed', duration_ms: durationMs, message });
      ended(name, 'failed', durationMs);
      throw new StageFailed(name, message);
    }
    stages[name] = { startedAt: stages[name]?.startedAt ?? clock.now(), doneAt: clock.now() };
    const durationMs = elapsed();
    emit({ stage: name, state: 'done', duration_ms: durationMs });
    ended(name, 'done', durationMs);
  }

  private async script(script: string, as: 'setup' | 'agent', reusable = false): Promise<void> {
    const { driver, signal, plan } = this.context;
    const { sandboxId } = plan;
    const env = {
      ...plan.environment?.envVars,
      HOME: plan.runtimeTurn.layout.home,
    };
    const { exitCode, outputTail } = await driver.runScript({
      sandboxId,
      signal,
      script,
      as,
      env,
      reusable,
    });
    if (exitCode !== 0) {
      throw new SandboxError('failed', lastLines(outputTail) || `exit code ${exitCode}`);
    }
  }

  private describe(error: unknown): string {
    const text = error instanceof Error ? error.message : String(error);
    return this.context.redactor.redact(text).replaceAll('\0', '\u{FFFD}').slice(0, MAX_MESSAGE);
  }
}

function lastLines(text: string): string {
  const tail = text.trim().split('\n').slice(-4).join('\n');
  return tail.length > MAX_MESSAGE ? `…${tail.slice(1 - MAX_MESSAGE)}` : tail;
}
