import type { Socket } from 'node:net';

/** What to connect to. */
export interface Target {
  /** The name or address to resolve and connect to. */
  host: string;
  port: number;
  /** Whether it is an address that the operator has configured, which may be private. */
  isGateway: boolean;
}

/** Connects a relay to the destinations that its sandbox may reach. */
export interface Egress {
  /**
   * Connects to an allowed destination if its addresses comply with the address policy, with half-open allowed.
   * @throws DialError
   */
  connect(target: Target, signal: AbortSignal): Promise<Socket>;
  /** Whether a name has an address, allowed or not. @throws Error if that is unknown at the moment */
  exists(host: string, signal: AbortSignal): Promise<boolean>;
}

/** The reason why a connection was not made. `refused`: by policy. `failed`: by the network. */
export class DialError extends Error {
  override readonly name = 'DialError';

  constructor(
    readonly kind: 'refused' | 'failed',
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Longer than any agent or server stays silent. Only closes connections that both sides have abandoned. */
const IDLE_MS = 60 * 60 * 1000;
/** How long one side may be silent after the other side has ended. */
const HALF_CLOSED_IDLE_MS = 10 * 60 * 1000;

/**
 * Copies both ways with backpressure until both sides are done. Forwards one side's end while the other direction
 * continues. A failure of one side resets the other.
 */
export function splice(client: Socket, upstream: Socket): void {
  for (const [socket, other] of [
    [client, upstream],
    [upstream, client],
  ] as const) {
    // Copying counts as activity on both sockets, so if one is idle, both are.
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
 * Closes a connection so that the peer sees a reset instead of an orderly end. Unix sockets have no reset and simply
 * end, as do those with TLS. Does nothing on a closed socket.
 */
export function reset(socket: Socket): void {
  if (socket.destroyed) return;
  // By its property: the class would load all of TLS in each supervisor, which takes as long as Node's start.
  const hasReset = !('encrypted' in socket) && socket.remotePort !== undefined;
  if (socket.connecting || !hasReset) socket.destroy();
  else if (isEnding(socket)) socket.once('finish', () => reset(socket));
  else socket.resetAndDestroy();
}

/**
 * Whether the end of what a socket sends is being passed to the kernel. Node 24 fails to reset a socket in this state
 * (EINVAL), and its descriptor stays open for good. The state ends with `finish`, within one turn of the event loop.
 */
function isEnding({ writableEnded, writableFinished, writableLength }: Socket): boolean {
  return writableEnded && !writableFinished && writableLength === 0;
}
