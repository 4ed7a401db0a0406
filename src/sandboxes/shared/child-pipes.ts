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
