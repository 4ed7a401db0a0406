import type { Socket } from 'node:net';
import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { SandboxError } from '../../../../supervisor/sandbox-error.js';
import { SYSTEM_PATH } from '../../../../supervisor/sandbox-options.js';
import { packageRoot } from '../../../../common/package-root.js';
import type {
  AbortRequest,
  SpawnAnswer,
  SpawnConnection,
  SpawnNotice,
  SpawnRequest,
} from './messages.js';

/** A separate program. It runs from the build, even if a test runs this module from source. */
const PROGRAM = 'dist/src/sandboxes/driver/local/launcher/main.js';
const NODE_FLAGS = [
  '--max-old-space-size=64',
  '--max-semi-space-size=1',
  '--disable-warning=ExperimentalWarning',
];

export type Command = Pick<SpawnRequest, 'argv'> &
  Partial<Omit<SpawnRequest, 'id' | 'argv'>> & { signal?: AbortSignal };

/** A program that exchanges data with this process. */
export interface ConnectedProgram {
  connection: Socket;
  ended: Promise<Pick<SpawnAnswer, 'exitCode' | 'output'>>;
}

/** How long a program whose connection is closed may take to end. */
const END_MS = 2000;

/** The result of a request. `lost`: the program may have been begun. `unsent`: it was not. */
type Outcome = SpawnAnswer | 'lost' | 'unsent';

interface Waiting {
  child: ChildProcess;
  begun: boolean;
  connected: ((connection: Socket) => void) | undefined;
  resolve: (outcome: Outcome) => void;
}

/**
 * Starts programs from a small process that does nothing else. Node forks to start a program, and the cost of a fork
 * grows with the memory of the process: in a service of 250 MB it takes 7 ms of processor time and blocks the event loop
 * for 16 ms, in the small process a tenth of that.
 */
export class Launcher {
  private process: ChildProcess | undefined;
  private lastId = 0;
  private readonly waiting = new Map<number, Waiting>();

  constructor(private readonly nodePath: string) {}

  /**
   * Runs a program. `null` as exit code: it could not be started.
   * @throws SandboxError `aborted` once it has ended after the signal, `failed` when the launcher itself was ended,
   *   `unavailable` when there is none and the program was not begun.
   */
  async run({ signal, ...command }: Command): Promise<Pick<SpawnAnswer, 'exitCode' | 'output'>> {
    if (signal?.aborted) throw aborted();
    const request = complete(command);
    let answer = await this.ask(request, signal);
    // The launcher died before it began the program, so another one may begin it.
    if (answer === 'unsent') answer = await this.ask(request, signal);
    if (signal?.aborted) throw aborted();
    return answered(answer);
  }

  /**
   * Starts a program that exchanges data with this process. When the connection is closed, the program has a moment to
   * end by itself.
   * @returns its standard input and output, and how it ends
   * @throws SandboxError as {@link run} does
   */
  async open(command: Omit<Command, 'signal' | 'until'>): Promise<ConnectedProgram> {
    const connected = Promise.withResolvers<Socket>();
    const stop = new AbortController();
    const request = complete({ ...command, until: 'connected' });
    const ask = () => this.ask(request, stop.signal, connected.resolve);
    const ended = ask()
      .then((outcome) => (outcome === 'unsent' ? ask() : outcome))
      .then(answered);
    const failed = ended.then(({ output }) => {
      throw new SandboxError('failed', `${command.argv[0]} could not be started: ${output}`);
    });
    failed.catch(() => undefined);
    const connection = await Promise.race([connected.promise, failed]);
    connection
      .on('error', () => undefined)
      .once('close', () => {
        const timer = setTimeout(() => stop.abort(), END_MS);
        const clear = (): void => clearTimeout(timer);
        ended.then(clear, clear);
      });
    return { connection, ended };
  }

  /** Ends the launcher and the programs that it waits for. Detached programs keep running. */
  async close(): Promise<void> {
    const child = this.process;
    if (!child) return;
    // So that no other launcher begins these programs again.
    for (const one of this.waiting.values()) one.begun = true;
    child.ref();
    const gone = new Promise((resolve) => child.once('exit', resolve));
    if (child.connected) child.disconnect();
    await gone;
  }

  private async ask(
    request: Omit<SpawnRequest, 'id'>,
    signal?: AbortSignal,
    connected?: (connection: Socket) => void,
  ): Promise<Outcome> {
    const id = (this.lastId += 1);
    const child = (this.process ??= this.begin());
    const abort = (): void =>
      void child.send({ abort: id } satisfies AbortRequest, () => undefined);
    child.channel?.ref();
    const outcome = await new Promise<Outcome>((resolve) => {
      this.waiting.set(id, { child, begun: false, connected, resolve });
      child.send({ ...request, id } satisfies SpawnRequest, (error) => {
        if (error === null) return;
        // Messages about other programs may still arrive from this launcher.
        if (this.process === child) this.process = undefined;
        resolve('unsent');
      });
      signal?.addEventListener('abort', abort);
    });
    signal?.removeEventListener('abort', abort);
    this.waiting.delete(id);
    if (this.waiting.size === 0) child.channel?.unref();
    return outcome;
  }

  private begin(): ChildProcess {
    const child = fork(join(packageRoot(), PROGRAM), [], {
      execPath: this.nodePath,
      execArgv: NODE_FLAGS,
      env: { PATH: SYSTEM_PATH },
      cwd: '/',
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      serialization: 'advanced',
      detached: true,
    });
    // The launcher must not keep this process running.
    child.unref();
    child.channel?.unref();
    child.on('message', (message: SpawnAnswer | SpawnNotice | SpawnConnection, handle) => {
      if ('connected' in message) {
        const connected = this.waiting.get(message.connected)?.connected;
        if (connected && handle) connected(handle as Socket);
        else (handle as Socket | undefined)?.destroy();
        return;
      }
      const one = this.waiting.get('begins' in message ? message.begins : message.id);
      if ('begins' in message) {
        if (one) one.begun = true;
      } else one?.resolve(message);
    });
    child.once('error', () => this.forget(child));
    // No message arrives after this event.
    child.once('disconnect', () => this.forget(child));
    return child;
  }

  /** Ends the requests of a launcher that sends no more messages. */
  private forget(child: ChildProcess): void {
    if (this.process === child) this.process = undefined;
    for (const one of this.waiting.values()) {
      if (one.child === child) one.resolve(one.begun ? 'lost' : 'unsent');
    }
  }
}

function complete(command: Omit<Command, 'signal'>): Omit<SpawnRequest, 'id'> {
  return {
    env: { PATH: SYSTEM_PATH },
    cwd: '/',
    stdin: new Uint8Array(),
    descriptors: [],
    log: null,
    until: 'end',
    ...command,
  };
}

function answered(answer: Outcome): SpawnAnswer {
  if (typeof answer === 'object') return answer;
  if (answer === 'unsent') {
    throw new SandboxError('unavailable', 'the process that starts programs cannot be started');
  }
  throw new SandboxError('failed', 'the process that starts programs was ended');
}

function aborted(): SandboxError {
  return new SandboxError('aborted', 'the operation was aborted');
}
