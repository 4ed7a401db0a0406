import type { Socket } from 'node:net';

/** Longer than an agent thinks or a server ponders; only there so that what both sides forgot ends. */
const IDLE_MS = 60 * 60 * 1000;
/** After one side has said its last, the other may be silent for this long. */
const HALF_CLOSED_IDLE_MS = 10 * 60 * 1000;

/**
 * Copies both ways with backpressure until both sides are done. One side's end is passed on and the other direction
 * goes on; one side's failure resets the other.
 */
export function splice(client: Socket, upstream: Socket): void {
  for (const [socket, other] of [
    [client, upstream],
    [upstream, client],
  ] as const) {
    // Whatever is copied is activity on both sockets, so silence on one of them is silence on both.
    socket.setTimeout(IDLE_MS, () => reset(socket));
    socket.once('end', () => {
      socket.setTimeout(HALF_CLOSED_IDLE_MS);
      other.setTimeout(HALF_CLOSED_IDLE_MS);
    });
    socket.once('error', () => reset(other));
    socket.once('close', () => {
      if (!(socket.readableEnded && socket.writableFinished)) reset(other);
    });
    socket.pipe(other);
  }
}

/**
 * Ends a connection so that the peer sees a reset and not an orderly end, where the connection has such a thing: a unix
 * socket has not. Harmless on a dead socket.
 */
export function reset(socket: Socket): void {
  if (socket.destroyed) return;
  if (socket.connecting || socket.remotePort === undefined) socket.destroy();
  else socket.resetAndDestroy();
}
