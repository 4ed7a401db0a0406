import type { Clock } from '../common/clock.js';
import { storableText } from '../common/storable.js';
import type { EnvironmentBuilds } from '../environments/environment-builds.js';
import type { StageEvent, StageName } from '../event-log/event-log.repository.js';
import type {
  OnSharedWork,
  RunScriptOptions,
  SharedSetup,
} from '../sandboxes/driver/sandbox-driver.js';
import type { TurnProgress } from './turn-queue.repository.js';
import { TurnTimeout } from './interruptions.js';
import type { TurnSandbox } from './turn-leases.js';
import { networkPolicyOf } from './network-policy.js';
import type { TurnPlan } from './turn-plan.js';
import {
  basesScript,
  needsWritableRoot,
  type ProvisionInput,
  provisionScripts,
  readBases,
  setupSentence,
} from './provision-script.js';
import { setupFailure } from './setup-failure.js';
import type { Redactor } from './redaction/redactor.js';
import {
  envFile,
  gitConfigFile,
  gitSkillScript,
  inlineSkillFiles,
  throughGateway,
} from './sandbox-files.js';
import type { TurnGrants } from './turn-grants.js';

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
  /** Describes the step to people while it runs. */
  doing: string;
  run: () => Promise<void>;
}

/** Makes a session's sandbox ready for its first turn, stage by stage. */
export class Provisioner {
  constructor(
    private readonly context: {
      /**
       * Was the sandbox made before the session? Then the setup that all such sessions share and the network mode are
       * done, but nothing else.
       */
      adopted: boolean;
      plan: TurnPlan;
      /** What the sandbox gets instead of credentials. */
      grants: () => TurnGrants;
      driver: TurnSandbox;
      redactor: Redactor;
      /** Receives a description of the current step, for people. */
      doing: { begin(sentence: string): void; onSharedWork: OnSharedWork };
      /** Records when the environment is built. */
      builds: Pick<EnvironmentBuilds, 'during'>;
      progress: TurnProgress;
      clock: Clock;
      signal: AbortSignal;
      /** Writes an event to the log, together with the progress. */
      emit: (event: StageEvent) => void;
      /** Called after each stage. */
      ended: (stage: StageName, result: StageResult, durationMs: number) => void;
    },
  ) {}

  /** Runs the stages that are not done yet. @throws StageFailed, or the signal's reason. */
  async provision(): Promise<void> {
    for (const step of this.steps()) {
      if (step.when) await this.run(step);
    }
  }

  private steps(): Step[] {
    const { plan, driver, adopted, signal } = this.context;
    const { onSharedWork } = this.context.doing;
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
        doing: 'Creating the sandbox',
        when: true,
        run: async () => {
          if (adopted) return;
          // A driver that shares results of setups begins with this one, if it is there. If its hosts cannot be read
          // now, the stage that needs them reports the error.
          const [setup] = await this.sharedSetups(input).catch(() => []);
          await driver.create({ sandboxId, signal, writableRoot, network, onSharedWork, setup });
        },
      },
      {
        name: 'network_policy',
        doing: 'Restricting the network',
        when: limited,
        run: async () => {
          const policy = await networkPolicyOf(plan, () =>
            driver.packageHosts({ sandboxId, signal }),
          );
          await driver.restrictNetwork({ sandboxId, signal, network: policy });
        },
      },
      {
        name: 'env_file',
        doing: 'Writing settings and variables',
        when: true,
        run: async () => {
          const files = runtime.settingsFiles(this.context.grants().runtimeTurn);
          if (environment && Object.keys(environment.envVars).length > 0) {
            files.push(envFile(layout, environment.envVars));
          }
          if (files.length > 0) await driver.writeFiles({ sandboxId, signal, files });
        },
      },
      {
        name: 'git_credentials',
        doing: 'Writing the credentials of repositories',
        when: repositories.some((repository) => repository.token !== undefined),
        run: async () => {
          if (throughGateway(repositories).length === 0) return;
          const file = gitConfigFile(layout, repositories, plan.gateway.url);
          await driver.writeFiles({ sandboxId, signal, files: [file] });
        },
      },
      {
        name: 'provision_setup',
        doing: setupSentence(input),
        when: true,
        run: async () => {
          const scripts = provisionScripts(input);
          if (!adopted) await this.shareSetups(input);
          // Programs come before changes to the sandbox itself, because a driver may replace its base system to provide
          // them.
          const { programs } = runtime;
          if (programs.length > 0 && !adopted) {
            const policy = await networkPolicyOf(plan, () =>
              driver.packageHosts({ sandboxId, signal }),
            );
            const how = { sandboxId, signal, programs, network: policy };
            await driver.providePrograms({ ...how, onSharedWork });
          }
          for (const { script, reusable } of scripts) {
            if (!reusable) await this.script(script, 'setup', this.sessionEnv());
          }
          if (plan.uploads.any) {
            // After an interruption they may be written already.
            const files = (await plan.uploads.load()).map(({ path, content }) => ({
              path: `${layout.workspace}/${path}`,
              content,
            }));
            if (files.length > 0) await driver.writeFiles({ sandboxId, signal, files });
            await plan.uploads.forget();
          }
          if (repositories.length > 0) {
            const output = await this.script(basesScript(input), 'agent', this.sessionEnv());
            this.context.progress.bases = readBases(output, repositories);
          }
        },
      },
      {
        name: 'mcp_config',
        doing: 'Configuring tool servers',
        when: runtimeTurn.mcpServers.length > 0,
        run: () => driver.writeFiles({ sandboxId, signal, files: runtime.mcpFiles(runtimeTurn) }),
      },
      {
        name: 'skills',
        doing: 'Installing skills',
        when: skills.length > 0,
        run: async () => {
          const folder = runtime.skillsFolder(layout);
          const files = skills.flatMap((skill) =>
            'content' in skill ? inlineSkillFiles(folder, skill) : [],
          );
          if (files.length > 0) await driver.writeFiles({ sandboxId, signal, files });
          for (const skill of skills) {
            if (!('url' in skill)) continue;
            await this.script(gitSkillScript(folder, skill), 'agent', this.sessionEnv());
          }
        },
      },
    ];
  }

  private async run({ name, run, doing }: Step): Promise<void> {
    const { progress, clock, signal, emit, ended } = this.context;
    const stages = (progress.stages ??= {});
    const before = stages[name];
    if (before?.doneAt !== undefined) return;
    signal.throwIfAborted();
    const begun = clock.monotonic();
    this.context.doing.begin(doing);
    if (!before) {
      stages[name] = { startedAt: clock.now() };
      emit({ stage: name, state: 'started' });
    }
    // If another worker began the stage, the time since then counts.
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

  /** The scripts whose result the sessions of an environment share. They depend on nothing of this session. */
  private async sharedSetups(input: ProvisionInput): Promise<SharedSetup[]> {
    const { plan, driver, signal } = this.context;
    const { environment } = plan;
    const scripts = provisionScripts(input).filter(({ reusable }) => reusable);
    if (!environment || scripts.length === 0) return [];
    const { sandboxId } = plan;
    const network = await networkPolicyOf({ ...plan, repositories: [] }, () =>
      driver.packageHosts({ sandboxId, signal }),
    );
    const env = { ...environment.envVars, HOME: input.layout.home };
    return scripts.map(({ script }) => ({ scope: environment.id, script, env, network }));
  }

  /** Runs those scripts, or takes over their results. */
  private async shareSetups(input: ProvisionInput): Promise<void> {
    const { plan, builds, doing, signal } = this.context;
    const setups = await this.sharedSetups(input);
    if (!plan.environment || setups.length === 0) return;
    const run = async (begun: () => void): Promise<void> => {
      const onBuild = (building: boolean): void => {
        if (building) begun();
        doing.onSharedWork(building ? setupSentence(input) : null);
      };
      for (const { script, env, scope, network } of setups) {
        const shared = { scope, network };
        await this.script(script, 'setup', env, { reusable: true, shared, onBuild });
      }
    };
    await builds.during(plan.environment, run, (error) =>
      signal.aborted ? undefined : this.describe(error),
    );
  }

  /** The variables of scripts that run for this session alone. */
  private sessionEnv(): Record<string, string> {
    const { plan, grants } = this.context;
    const HOME = plan.runtimeTurn.layout.home;
    return { ...plan.environment?.envVars, ...grants().env, HOME };
  }

  private async script(
    script: string,
    as: 'setup' | 'agent',
    env: Readonly<Record<string, string>>,
    sharing: Pick<RunScriptOptions, 'reusable' | 'shared' | 'onBuild'> = {},
  ): Promise<string> {
    const { driver, signal, plan, redactor } = this.context;
    const { sandboxId } = plan;
    const how = { sandboxId, signal, script, as, env, ...sharing };
    const { exitCode, outputTail } = await driver.runScript(how);
    if (exitCode !== 0) throw setupFailure({ exitCode, output: outputTail }, redactor);
    return outputTail;
  }

  private describe(error: unknown): string {
    const text = error instanceof Error ? error.message : String(error);
    return storableText(this.context.redactor.redact(text), MAX_MESSAGE);
  }
}
