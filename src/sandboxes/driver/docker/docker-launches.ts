import { randomUUID } from 'node:crypto';
import type { Duplex } from 'node:stream';
import type Docker from 'dockerode';
import { CONTAINER_GROUPS } from '../../../supervisor/confine.js';
import type { LaunchRequest } from '../../../supervisor/launch-request.js';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { AGENT_ID, HOME, SYSTEM_PATH, WORKSPACE } from '../../../supervisor/sandbox-options.js';
import { scriptCommand } from '../../../supervisor/scripts.js';
import { seccompFilter } from '../../../supervisor/seccomp/profiles.js';
import type { ServedPlace } from '../../../supervisor/served-place.js';
import { SupervisorClient } from '../../../supervisor/supervisor-client.js';
import { certificateEnvironment } from '../certificates.js';
import type { LaunchOptions, ScriptResult } from '../sandbox-driver.js';
import { killInTime } from '../remote-launches.js';
import type { RunningSandbox } from './docker-sandboxes.js';
import { inTime, translate, unless } from './engine.js';
import { runExec, startExec, streamOf } from './exec.js';
import { CERTIFICATES_FILE, type DockerSandboxOptions, SPOOL } from './options.js';
import type { RuntimeOnEngine } from './runtime-on-engine.js';
import type { SetupDisk } from './setup-disk.js';

/** The user that a launch runs as. */
export type Profile = 'agent' | 'setup';

/** Each turn starts with this folder empty, because it is in memory and an agent can write to it. */
const CLEARED = ['/dev/shm'];
/** Folders in memory, which count towards the engine's memory limit. */
const SCRATCH = ['/run', '/dev/shm'];

/** The timeout for opening a connection through the engine. */
const ANSWER_MS = 30_000;

/** Runs launches in containers. The supervisor in each container is reached through the engine. */
export class DockerLaunches {
  constructor(
    private readonly options: DockerSandboxOptions,
    private readonly runtime: RuntimeOnEngine,
    private readonly setupDisk: SetupDisk,
  ) {}

  /** The environment of all processes in a sandbox, before the launch's own variables. */
  environment(
    { env, hasCertificates }: Pick<RunningSandbox, 'env' | 'hasCertificates'>,
    profile: Profile,
  ): Record<string, string> {
    return {
      ...env,
      ...(hasCertificates && certificateEnvironment(CERTIFICATES_FILE)),
      PATH: `${HOME}/.local/bin:${env['PATH'] ?? SYSTEM_PATH}`,
      HOME,
      USER: profile === 'setup' ? 'root' : 'agent',
      LANG: 'C.UTF-8',
      TERM: 'dumb',
    };
  }

  /** The request to the supervisor for a launch. */
  request(
    sandbox: RunningSandbox,
    options: Omit<LaunchOptions, 'sandboxId' | 'launchId' | 'signal'>,
    profile: Profile,
    cleared: readonly string[] = CLEARED,
  ): LaunchRequest {
    const setup = profile === 'setup';
    return {
      command: options.command,
      environment: { ...this.environment(sandbox, profile), ...options.env },
      stdin: options.stdin,
      cwd: options.cwd ?? WORKSPACE,
      deadline: options.deadline,
      outputLimit: options.outputLimit,
      limits: this.options.limits,
      owner: null,
      scratchFolders: SCRATCH,
      clear: { folders: cleared, as: AGENT_ID },
      // The engine's own filter applies, too. Changes of ownership need no pretence, because root in a container may
      // change owners.
      seccomp: seccompFilter('agent', process.arch).toString('base64'),
      cgroups: CONTAINER_GROUPS,
      disk: {
        kind: 'folders',
        folders: [HOME, WORKSPACE, '/tmp'],
        ...(sandbox.writableRoot && { changed: { root: '/', since: sandbox.createdAt } }),
      },
      stage: {
        kind: 'plain',
        confine: this.runtime.confine,
        keepCapabilities: setup,
        uid: setup ? null : AGENT_ID,
        // All containers share this kernel user, so the container's own limit of processes is used.
        limitProcesses: false,
      },
    };
  }

  /**
   * Runs a script to its end. The script ends with its connection, and so with this process.
   * @throws SandboxError as documented in the port
   */
  async script(
    sandbox: RunningSandbox,
    options: {
      script: string;
      profile: Profile;
      env: Readonly<Record<string, string>>;
      signal: AbortSignal;
    },
  ): Promise<ScriptResult> {
    const { script, profile, env } = options;
    const request = this.request(sandbox, { ...scriptCommand(script), env }, profile, []);
    const client = new SupervisorClient({
      connect: () => this.connect(() => Promise.resolve(sandbox)),
    });
    const launchId = randomUUID();
    const run = async (signal: AbortSignal): Promise<ScriptResult> => {
      try {
        return await client.run({ launchId, request, signal });
      } catch (error) {
        await killInTime(client, launchId, () => restart(sandbox));
        throw error;
      }
    };
    try {
      if (profile === 'agent') return await run(options.signal);
      return await this.setupDisk.watched(sandbox, options.signal, run);
    } finally {
      await client.close();
    }
  }

  /** Makes the agent the owner of everything in its folders. */
  async giveToAgent(container: Docker.Container): Promise<void> {
    const program = 'supervisor/own-files.js';
    const { exitCode, output } = await runExec(container, {
      command: this.runtime.command(program, 'give', String(AGENT_ID), HOME, WORKSPACE, '/tmp'),
    });
    if (exitCode !== 0) throw new SandboxError('failed', `${program}: ${output}`);
  }

  /**
   * Starts the program in a container that answers calls on its standard input and output.
   * @param find returns the running sandbox, or throws `gone`
   */
  async connect(find: () => Promise<RunningSandbox>): Promise<Duplex> {
    const { host } = this.options.engine;
    try {
      const { container } = await inTime(find(), { host, ms: ANSWER_MS });
      const place: ServedPlace = {
        launches: SPOOL,
        agentUser: AGENT_ID,
        disk: {
          folders: [HOME, WORKSPACE, '/tmp'],
          limitBytes: this.options.limits.diskBytes,
        },
        confine: this.runtime.confine,
        main: this.runtime.nodeCommand('supervisor/main.js'),
      };
      const command = this.runtime.command('supervisor/serve.js', JSON.stringify(place));
      const starting = startExec(container, { command });
      // If the engine starts the program after the timeout, the program finds its input closed and exits.
      const running = await inTime(starting, { host, ms: ANSWER_MS }).catch((error: unknown) => {
        starting.then(
          (late) => late.close(),
          () => undefined,
        );
        throw asAway(error);
      });
      return streamOf(running);
    } catch (error) {
      throw translate(error, host);
    }
  }
}

/** Kills all processes in a container. */
export async function restart({ container }: RunningSandbox): Promise<void> {
  await container.kill().catch(unless([404, 409], undefined));
  await container.start().catch(unless([304, 404], undefined));
}

/** A container that was found and is now missing has just been replaced or removed; the next attempt finds out. */
function asAway(error: unknown): unknown {
  if (!(error instanceof SandboxError) || error.kind !== 'gone') return error;
  return new SandboxError('unavailable', error.message, { cause: error });
}
