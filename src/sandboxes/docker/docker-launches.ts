import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type Docker from 'dockerode';
import type { LaunchOptions, ScriptResult, SpoolEvent, SpoolExit } from '../sandbox-driver.js';
import { SandboxError } from '../sandbox-error.js';
import { AGENT_ID, HOME, SYSTEM_PATH, WORKSPACE } from '../shared/layout.js';
import type { LaunchAnswer, LaunchRequest } from '../shared/launch/launch-request.js';
import { runLaunchedScript, SCRIPT_MARK } from '../shared/launch/scripts.js';
import type { DockerSandboxOptions } from './options.js';
import { isEngineAway, unless } from './engine.js';
import { runExec, startExec } from './exec.js';
import { EventDecoder } from './inside/follow-protocol.js';
import { SPOOL } from './names.js';
import type { RuntimeOnEngine } from './runtime-on-engine.js';
import type { RunningSandbox } from './docker-sandboxes.js';

/** Who a launch runs as. */
export type Profile = 'agent' | 'setup';

/**
 * The launch's folder with pipes for the output, which Node cannot make itself, and then the supervisor. A turn finds
 * nothing of the last one's in the folders that are nobody's.
 */
const START_SCRIPT = `
folder=$1 mark=$2
shift 2
mkdir -p -m 0700 -- "$folder" || exit 1
if [ -n "$mark" ]; then : >"$folder/$mark"
else find /tmp /var/tmp /dev/shm -xdev -mindepth 1 -delete 2>/dev/null; fi
mkfifo -m 0600 -- "$folder/stdout" "$folder/stderr" 2>/dev/null
exec "$@" 2>>"$folder/log"`;

/** Becomes the agent and keeps no right, not even the way to one. */
const BECOME_AGENT = [
  ['setpriv', '--reuid', `${AGENT_ID}`, '--regid', `${AGENT_ID}`, '--clear-groups'],
  ['--inh-caps=-all', '--bounding-set=-all', '--no-new-privs', '--'],
].flat();

/** How long a launch may take to be killed by its supervisor; then its container is. */
const KILL_MS = 1500;
/** For how long a follower waits for an engine that does not answer. */
const ENGINE_PATIENCE_MS = 120_000;
const RETRY_MS = 250;
const LOST: SpoolExit = { kind: 'exit', reason: 'lost', exitCode: null };

export function launchFolder(launchId: string): string {
  return `${SPOOL}/${launchId}`;
}

/** What runs in containers: started under a supervisor there, followed by a program there, ended from there. */
export class DockerLaunches {
  constructor(
    private readonly options: DockerSandboxOptions,
    private readonly runtime: RuntimeOnEngine,
  ) {}

  /** The environment of everything in a sandbox, before the launch's own. */
  environment({ env }: Pick<RunningSandbox, 'env'>, profile: Profile): Record<string, string> {
    return {
      ...env,
      PATH: `${HOME}/.local/bin:${env['PATH'] ?? SYSTEM_PATH}`,
      HOME,
      USER: profile === 'setup' ? 'root' : 'agent',
      LANG: 'C.UTF-8',
      TERM: 'dumb',
    };
  }

  /** @param script whether the launch is of no use to anybody but this process */
  async start(
    sandbox: RunningSandbox,
    options: Omit<LaunchOptions, 'sandboxId'>,
    profile: Profile,
    script = false,
  ): Promise<void> {
    const { limits } = this.options;
    const folder = launchFolder(options.launchId);
    const setup = profile === 'setup';
    const request: LaunchRequest = {
      folder,
      command: options.command,
      environment: { ...this.environment(sandbox, profile), ...options.env },
      stdin: options.stdin,
      cwd: options.cwd ?? WORKSPACE,
      deadline: options.deadline,
      outputLimit: options.outputLimit,
      limits,
      owner: null,
      countedFolders: [HOME, WORKSPACE],
      stage: {
        kind: 'plain',
        prefix: setup ? [] : BECOME_AGENT,
        uid: setup ? null : AGENT_ID,
        // To the kernel the user is that of every container; the container's own limit counts.
        limitProcesses: false,
      },
    };
    const running = await startExec(sandbox.container, {
      command: [
        ['/bin/sh', '-c', START_SCRIPT, 'sh', folder, script ? SCRIPT_MARK : ''],
        this.runtime.command('shared/supervisor/main.js'),
      ].flat(),
    });
    const abort = (): void => running.close();
    options.signal.addEventListener('abort', abort);
    let answer: LaunchAnswer | undefined;
    let said = '';
    try {
      running.stdin.end(JSON.stringify(request));
      for await (const { stream, data } of running.output()) {
        said += data.toString('utf8');
        if (stream === 'stdout' && said.includes('\n')) {
          answer = JSON.parse(said) as LaunchAnswer;
          break;
        }
      }
    } finally {
      options.signal.removeEventListener('abort', abort);
      // The supervisor goes on by itself.
      running.close();
    }
    if (options.signal.aborted) {
      await this.end(sandbox.container, options.launchId).catch(() => undefined);
      throw new SandboxError('aborted', 'the launch was aborted');
    }
    if (answer?.ok) return;
    const complaint = answer?.message ?? (said.trim().slice(-300) || 'it ended without a word');
    throw new SandboxError('failed', `the sandbox could not be started: ${complaint}`);
  }

  /**
   * Follows a launch over broken connections and an engine that restarts.
   * @param find the running sandbox, or `gone`
   */
  async *follow(
    find: () => Promise<RunningSandbox>,
    options: { launchId: string; offset: number; signal: AbortSignal; tied?: boolean },
  ): AsyncGenerator<SpoolEvent, void, undefined> {
    const { signal } = options;
    let { offset } = options;
    let awaySince: number | undefined;
    for (;;) {
      if (signal.aborted) throw new SandboxError('aborted', 'following was aborted');
      try {
        const { container } = await find();
        for await (const event of this.events(container, { ...options, offset })) {
          awaySince = undefined;
          yield event;
          if (event.kind === 'exit') return;
          offset = event.nextOffset;
        }
      } catch (error) {
        if (error instanceof SandboxError && error.kind === 'gone') {
          yield LOST;
          return;
        }
        if (!isEngineAway(error)) throw error;
        awaySince ??= Date.now();
        if (Date.now() - awaySince > ENGINE_PATIENCE_MS) throw error;
      }
      await delay(RETRY_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  /** Ends a launch. Where its supervisor cannot be reached in time, all of its container ends. */
  async kill(sandbox: RunningSandbox, launchId: string): Promise<void> {
    const { container } = sandbox;
    const ended = this.end(container, launchId).then(
      () => true,
      () => false,
    );
    const inTime = await Promise.race([ended, delay(KILL_MS, false, { ref: false })]);
    if (inTime) return;
    await container.kill().catch(unless([404, 409], undefined));
    await container.start().catch(unless([304, 404], undefined));
    await this.end(container, launchId);
  }

  /** Removes what a finished launch has written. */
  async discard(container: Docker.Container, launchId: string): Promise<void> {
    const paths = ['spool', 'log', 'stdout', 'stderr'].map(
      (name) => `${launchFolder(launchId)}/${name}`,
    );
    await runExec(container, { command: ['rm', '-f', '--', ...paths] });
  }

  /**
   * Runs a script to its end. It ends with this process: its follower sees that nobody listens any more.
   * @throws SandboxError as the port says
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
    const launchId = randomUUID();
    const { container } = sandbox;
    await this.run(container, 'docker/inside/end-launch.js', 'scripts', SPOOL);
    try {
      return await runLaunchedScript({
        script: options.script,
        signal: options.signal,
        start: (command) =>
          this.start(
            sandbox,
            { ...command, launchId, env: options.env, signal: options.signal },
            options.profile,
            true,
          ),
        follow: (signal) =>
          this.follow(() => Promise.resolve(sandbox), { launchId, offset: 0, signal, tied: true }),
        kill: () => this.kill(sandbox, launchId),
      });
    } finally {
      await runExec(container, { command: ['rm', '-rf', '--', launchFolder(launchId)] }).catch(
        () => undefined,
      );
    }
  }

  /** One follower's events; ends when the follower does. */
  private async *events(
    container: Docker.Container,
    options: { launchId: string; offset: number; signal: AbortSignal; tied?: boolean },
  ): AsyncGenerator<SpoolEvent, void, undefined> {
    const running = await startExec(container, {
      command: this.runtime.command(
        'docker/inside/follow.js',
        launchFolder(options.launchId),
        String(options.offset),
        String(AGENT_ID),
        options.tied ? 'tied' : '',
      ),
    });
    const abort = (): void => running.close();
    options.signal.addEventListener('abort', abort);
    if (options.signal.aborted) abort();
    const decoder = new EventDecoder();
    try {
      for await (const { stream, data } of running.output()) {
        if (stream === 'stdout') yield* decoder.push(data);
      }
    } finally {
      options.signal.removeEventListener('abort', abort);
      running.close();
    }
  }

  private async end(container: Docker.Container, launchId: string): Promise<void> {
    const folder = launchFolder(launchId);
    await this.run(container, 'docker/inside/end-launch.js', 'launch', folder, String(AGENT_ID));
  }

  private async run(container: Docker.Container, program: string, ...args: string[]) {
    const { exitCode, output } = await runExec(container, {
      command: this.runtime.command(program, ...args),
    });
    if (exitCode !== 0) throw new SandboxError('failed', `${program}: ${output.slice(-300)}`);
  }
}
