import type { Socket } from 'node:net';

/** What the first bytes of a connection say about the host that it is for. */
export type HostClaim =
  | { state: 'incomplete' }
  | { state: 'named'; host: string }
  /** It will never name a host, for this reason. */
  | { state: 'unnamed'; why: string };

export interface Peeked {
  /** Everything read so far: it has to be passed on first. */
  bytes: Buffer;
  claim: HostClaim;
}

/**
 * Reads from a paused socket until `parse` knows which host the client means, and leaves the socket paused.
 * Never rejects: a client that is too slow, says too much or leaves gives an `unnamed` claim.
 */
export function peekHost(
  socket: Socket,
  parse: (bytes: Buffer) => HostClaim,
  limits: { maxBytes: number; timeoutMs: number },
): Promise<Peeked> {
  return new Promise((resolve) => {
    let bytes: Buffer = Buffer.alloc(0);
    const settle = (claim: HostClaim): void => {
      clearTimeout(timer);
      socket.off('data', onData).off('end', onEnd).off('close', onEnd);
      socket.pause();
      resolve({ bytes, claim });
    };
    const onEnd = (): void => settle({ state: 'unnamed', why: 'the client left' });
    const onData = (chunk: Buffer): void => {
      bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk]);
      const claim = parse(bytes);
      if (claim.state !== 'incomplete') settle(claim);
      else if (bytes.length >= limits.maxBytes) {
        settle({ state: 'unnamed', why: 'the first message is too long' });
      }
    };
    const timer = setTimeout(
      () => settle({ state: 'unnamed', why: 'the first message took too long' }),
      limits.timeoutMs,
    );
    socket.on('data', onData).on('end', onEnd).on('close', onEnd);
    socket.resume();
  });
}
