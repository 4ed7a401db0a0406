import type { ChildProcess } from 'node:child_process';
import type { Duplex } from 'node:stream';

/** Our end of a descriptor that a child was spawned with as 'pipe', which Node makes a socket: both ways, any number. */
export function childPipe(child: ChildProcess, fd: number): Duplex {
  const pipe = (child.stdio as unknown as readonly (Duplex | null | undefined)[])[fd];
  if (!pipe) throw new Error(`the child was spawned without a pipe at descriptor ${fd}`);
  return pipe;
}

/** Writes all of `data` to a child's descriptor and closes it. A child that does not read it is not an error here. */
export function feedChild(child: ChildProcess, fd: number, data: string | Buffer): void {
  const pipe = childPipe(child, fd);
  pipe.on('error', () => undefined);
  pipe.end(data);
}

/**
 * Ends a child that was spawned `detached`, with all that it has forked. Killing bubblewrap alone is not enough: what it
 * forks waits for a word from it before it asks to die with it, and would wait for ever, holding the child's pipes open.
 */
export function killGroup(child: ChildProcess): void {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch {
    // It has just ended.
  }
}
