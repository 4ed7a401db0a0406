import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { SandboxError } from '../../sandbox-error.js';
import { SYSTEM_PATH } from '../../shared/layout.js';
import { packageRoot } from '../../shared/package-root.js';
import type { AbortRequest, SpawnAnswer, SpawnNotice, SpawnRequest } from './messages.js';

/** A program of its own: it runs from the build, also when this module is run from source by a test. */
const PROGRAM = 'dist/src/sandboxes/local/spawner/main.js';
const NODE_FLAGS = [
  '--max-old-space-size=64',
  '--max-semi-space-size=1',
  '--disable-warning=ExperimentalWarning',
];

export type Command = Pick<SpawnRequest, 'argv'> &
  Partial<Omit<SpawnRequest, 'id' | 'argv'>> & { signal?: AbortSignal };

/** What became of a request: `lost`, when it may have been begun; `unsent`, when it was not. */
type Outcome = SpawnAnswer | 'lost' | 'unsent';

interface Waiting {
  child: ChildProcess;
  begun: boolean;
  resolve: (outcome: Outcome) => void;
}

/**
 * Starts programs by a small process that does nothing else. Node starts a program by forking, and what a fork costs
 * grows with the memory of the process that forks: in a service of 250 MB it takes 7 ms of a processor and holds up
 * everything else for 16, in this one a tenth of that.
 */
export class Spawner {
  private process: ChildProcess | undefined;
  private lastId = 0;
  private readonly waiting = new Map<number, Waiting>();

  constructor(private readonly nodePath: string) {}

  /**
   * Runs a program. `null` as exit code: it could not be started.
   * @throws SandboxError `aborted` once it has ended after the signal, `failed` when the spawner itself was ended.
   */
  async run({ signal, ...command }: Command): Promise<Pick<SpawnAnswer, 'exitCode' | 'output'>> {
    if (signal?.aborted) throw aborted();
    const request = {
      env: { PATH: SYSTEM_PATH },
      cwd: '/',
      stdin: new Uint8Array(),
      descriptors: [],
      log: null,
      until: 'end' as const,
      ...command,
    };
    let answer = await this.ask(request, signal);
    // It died before it began: another one may.
    if (answer === 'unsent') answer = await this.ask(request, signal);
    if (signal?.aborted) throw aborted();
    if (typeof answer === 'object') return answer;
    throw new SandboxError('failed', 'the process that starts programs was ended');
  }

  /** Ends it, and what is still being waited for; programs that were let go go on. */
  async close(): Promise<void> {
    const child = this.process;
    if (!child) return;
    // What is waited for is not begun anew elsewhere.
    for (const one of this.waiting.values()) one.begun = true;
    child.ref();
    const gone = new Promise((resolve) => child.once('exit', resolve));
    if (child.connected) child.disconnect();
    await gone;
  }

  private async ask(request: Omit<SpawnRequest, 'id'>, signal?: AbortSignal): Promise<Outcome> {
    const id = (this.lastId += 1);
    const child = (this.process ??= this.begin());
    const abort = (): void =>
      void child.send({ abort: id } satisfies AbortRequest, () => undefined);
    child.channel?.ref();
    const outcome = await new Promise<Outcome>((resolve) => {
      this.waiting.set(id, { child, begun: false, resolve });
      child.send({ ...request, id } satisfies SpawnRequest, (error) => {
        if (error === null) return;
        // Of the others it may have said something that is still to be heard.
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
    // It is no reason for this process to go on.
    child.unref();
    child.channel?.unref();
    child.on('message', (message: SpawnAnswer | SpawnNotice) => {
      const one = this.waiting.get('begins' in message ? message.begins : message.id);
      if ('begins' in message) {
        if (one) one.begun = true;
      } else one?.resolve(message);
    });
    child.once('error', () => this.forget(child));
    // Only then all that it has said was heard.
    child.once('disconnect', () => this.forget(child));
    return child;
  }

  /** It says nothing any more. */
  private forget(child: ChildProcess): void {
    if (this.process === child) this.process = undefined;
    for (const one of this.waiting.values()) {
      if (one.child === child) one.resolve(one.begun ? 'lost' : 'unsent');
    }
  }
}

function aborted(): SandboxError {
  return new SandboxError('aborted', 'the operation was aborted');
}
