import type { ChildProcess } from 'node:child_process';
import type { Duplex } from 'node:stream';
import { constants } from 'node:os';
import type { LaunchRequest } from './launch-request.js';

/** The parent's end of a descriptor that the child was spawned with as 'pipe', which Node implements as a socket. */
export function childPipe(child: ChildProcess, fd: number): Duplex {
  const pipe = (child.stdio as unknown as readonly (Duplex | null | undefined)[])[fd];
  if (!pipe) throw new Error(`the child was spawned without a pipe at descriptor ${fd}`);
  return pipe;
}

/** Writes all of `data` to a child's descriptor and closes it. It is no error here if the child does not read it. */
export function feedChild(child: ChildProcess, fd: number, data: string | Buffer): void {
  const pipe = childPipe(child, fd);
  pipe.on('error', () => undefined);
  pipe.end(data);
}

/** Kills a child that was spawned `detached`, with the processes that it forked. */
export function killGroup(child: ChildProcess): void {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch {
    // The process group has just ended.
  }
}

/** Ends a collecting process (`confine --reap`), which first kills everything below it. */
export function endCollecting(child: ChildProcess): void {
  if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM');
}

/** The descriptors where `confine` finds the filter, announces the command, and finds its environment. */
export const SECCOMP_FD = 5;
export const RUNNING_FD = 7;
export const ENVIRONMENT_FD = 9;

/** The descriptors for the runtime's stdout and stderr. Its input goes to `confine`, which seals it. */
export type RuntimeOutput = readonly [stdout: number, stderr: number];

/** The runtime with all its processes, with any kind of isolation. */
export interface RuntimeProcess {
  /**
   * Resolves when the setup is complete and the runtime's own program is about to be executed.
   * @throws Error with the reason of a failure; then the command has not run at all
   */
  readonly started: Promise<void>;
  /**
   * The exit code of the runtime's main process: 0 to 255, 128 + n for signal n. `null` if it cannot be known any more,
   * because the container that the runtime was in has ended. Never rejects.
   */
  readonly exited: Promise<number | null>;
  /**
   * Resolves when a limit of disk or memory is exceeded, where only somebody else can measure them. Absent where this
   * process does.
   */
  readonly limited?: Promise<'disk_limit' | 'memory_limit'>;
  /** The path of its root folder for this process; absent if both have the same root. */
  root(): string;
  /** All its processes. @throws the system's error if they are unknown */
  pids(): number[];
  /** Asks all processes to end. */
  terminate(): void;
  /** Kills all processes. */
  destroy(): void;
}

/** Encodes the runtime's environment for `confine`. An empty entry ends it, so that a part is not taken for the whole. */
export function environmentOf({ environment }: LaunchRequest): string {
  const entries = Object.entries(environment).map(([name, value]) => `${name}=${value}`);
  if (entries.some((entry) => entry.includes('\0'))) throw new Error('a variable contains NUL');
  return [...entries, ''].map((entry) => `${entry}\0`).join('');
}

/** The processes to kill. Returns none if they are unknown, because the following steps kill all of them anyway. */
export function asFarAsKnown(pids: () => number[]): number[] {
  try {
    return pids();
  } catch {
    return [];
  }
}

export function exitCodeOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve) => {
    child.once('error', () => resolve(127));
    child.once('exit', (code, signal) =>
      resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal])),
    );
  });
}

/** Waits until the limits are set and the command is executed next. */
export function announcement(child: ChildProcess, exited: Promise<number>): Promise<void> {
  const pipe = childPipe(child, RUNNING_FD);
  return new Promise((resolve, reject) => {
    pipe.once('data', () => {
      resolve();
      pipe.destroy();
    });
    pipe.on('error', () => undefined);
    // Waits for the end of the pipe instead of the exit, because a short command may exit before its announcement is
    // read.
    pipe.once('end', () => {
      exited.then(
        (code) => reject(new Error(`the sandbox could not be set up (exit code ${code})`)),
        reject,
      );
    });
  });
}
