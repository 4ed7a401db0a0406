import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { SandboxError } from '../../sandbox-error.js';
import { SYSTEM_PATH } from '../../shared/layout.js';
import { packageRoot } from '../../shared/package-root.js';
import type { AbortRequest, SpawnAnswer, SpawnRequest } from './messages.js';

/** A program of its own: it runs from the build, also when this module is run from source by a test. */
const PROGRAM = 'dist/src/sandboxes/local/spawner/main.js';
const NODE_FLAGS = [
  '--max-old-space-size=64',
  '--max-semi-space-size=1',
  '--disable-warning=ExperimentalWarning',
];

export type Command = Pick<SpawnRequest, 'argv'> &
  Partial<Omit<SpawnRequest, 'id' | 'argv'>> & { signal?: AbortSignal };

/**
 * Starts programs by a small process that does nothing else. Node starts a program by forking, and what a fork costs
 * grows with the memory of the process that forks: in a service of 250 MB it takes 7 ms of a processor and holds up
 * everything else for 16, in this one a tenth of that.
 */
export class Spawner {
  private process: ChildProcess | undefined;
  private lastId = 0;
  private readonly waiting = new Map<number, (answer: SpawnAnswer | undefined) => void>();

  constructor(private readonly nodePath: string) {}

  /**
   * Runs a program. `null` as exit code: it could not be started.
   * @throws SandboxError `aborted` once it has ended after the signal, `failed` when the spawner itself was ended.
   */
  async run({ signal, ...command }: Command): Promise<Pick<SpawnAnswer, 'exitCode' | 'output'>> {
    if (signal?.aborted) throw aborted();
    const id = (this.lastId += 1);
    const abort = (): void => this.send({ abort: id });
    const answer = await new Promise<SpawnAnswer | undefined>((resolve) => {
      this.waiting.set(id, resolve);
      this.send({
        env: { PATH: SYSTEM_PATH },
        cwd: '/',
        stdin: new Uint8Array(),
        descriptors: [],
        log: null,
        until: 'end',
        ...command,
        id,
      });
      signal?.addEventListener('abort', abort);
    });
    signal?.removeEventListener('abort', abort);
    this.waiting.delete(id);
    if (this.waiting.size === 0) this.process?.channel?.unref();
    if (signal?.aborted) throw aborted();
    if (!answer) throw new SandboxError('failed', 'the process that starts programs was ended');
    return answer;
  }

  /** Ends it, and what is still being waited for; programs that were let go go on. */
  async close(): Promise<void> {
    const child = this.process;
    if (!child) return;
    child.ref();
    const gone = new Promise((resolve) => child.once('exit', resolve));
    if (child.connected) child.disconnect();
    await gone;
  }

  private send(message: SpawnRequest | AbortRequest): void {
    const child = (this.process ??= this.begin());
    child.channel?.ref();
    // Whether it arrives is told by the answer, or by the end of the process.
    child.send(message, () => undefined);
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
    child.on('message', (answer: SpawnAnswer) => this.waiting.get(answer.id)?.(answer));
    const ended = (): void => {
      if (this.process !== child) return;
      this.process = undefined;
      for (const resolve of this.waiting.values()) resolve(undefined);
    };
    child.once('error', ended);
    child.once('exit', ended);
    return child;
  }
}

function aborted(): SandboxError {
  return new SandboxError('aborted', 'the operation was aborted');
}
