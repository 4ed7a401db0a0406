import { lookup } from 'node:dns/promises';
import { connect } from 'node:net';
import { hostAddresses, refusalOfAddress } from './address-policy.js';
import type { Socket } from 'node:net';
import type { Destination } from './destinations.js';

/** All addresses of a name, the best first; rejects if there are none. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/** A connected socket with half-open allowed; rejects, and leaves nothing open, on failure or abort. */
export type Dial = (target: {
  address: string;
  port: number;
  signal: AbortSignal;
}) => Promise<Socket>;

const RESOLVE_TIMEOUT_MS = 15_000;
const CONNECT_TIMEOUT_MS = 10_000;
const KEEPALIVE_MS = 60_000;
/** A name with many dead addresses must not hold a connection for minutes. */
const MAX_ATTEMPTS = 4;

/** The host's own resolver, its hosts file included. */
export const resolveOnHost: Resolve = async (host) =>
  (await lookup(host, { all: true, order: 'verbatim' })).map((entry) => entry.address);

export const dialFromHost: Dial = ({ address, port, signal }) =>
  new Promise((resolve, reject) => {
    const socket = connect({
      host: address,
      port,
      allowHalfOpen: true,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEPALIVE_MS,
    });
    const fail = (error: Error): void => {
      signal.removeEventListener('abort', onAbort);
      socket.destroy();
      reject(error);
    };
    const onAbort = (): void => fail(signal.reason as Error);
    socket.once('error', fail);
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) onAbort();
    socket.once('connect', () => {
      signal.removeEventListener('abort', onAbort);
      socket.off('error', fail);
      resolve(socket);
    });
  });

/** Says why a destination was not, or could not be, dialled. `refused` is for policy, `failed` for the network. */
export class DialError extends Error {
  override readonly name = 'DialError';

  constructor(
    readonly kind: 'refused' | 'failed',
    message: string,
  ) {
    super(message);
  }
}

/**
 * Resolves a destination, vets every address, and dials the vetted ones in order until one answers. What is dialled is
 * the address that was vetted, so that a second answer of the resolver changes nothing.
 * @throws DialError
 */
export async function dialDestination(
  destination: Destination,
  { resolve, dial, signal }: { resolve: Resolve; dial: Dial; signal: AbortSignal },
): Promise<Socket> {
  const addresses = await withTimeout(resolve(destination.host), signal).catch((error: unknown) => {
    throw new DialError('failed', `does not resolve: ${codeOf(error)}`);
  });
  const own = destination.isGateway ? [] : hostAddresses();
  let refusal: string | undefined;
  const vetted = addresses.filter((address) => {
    if (destination.isGateway) return true;
    const why = refusalOfAddress(address, own);
    refusal ??= why;
    return why === undefined;
  });
  if (vetted.length === 0) {
    throw new DialError(
      refusal === undefined ? 'failed' : 'refused',
      refusal === undefined ? 'does not resolve' : `resolves to a forbidden address: ${refusal}`,
    );
  }
  let failure = '';
  for (const address of vetted.slice(0, MAX_ATTEMPTS)) {
    signal.throwIfAborted();
    const attempt = AbortSignal.any([signal, AbortSignal.timeout(CONNECT_TIMEOUT_MS)]);
    try {
      return await dial({ address, port: destination.port, signal: attempt });
    } catch (error) {
      failure = codeOf(error);
    }
  }
  throw new DialError('failed', `does not connect: ${failure}`);
}

/** getaddrinfo cannot be cancelled, so only its answer is given up. */
function withTimeout<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(RESOLVE_TIMEOUT_MS)]);
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(limit.reason as Error);
    limit.addEventListener('abort', onAbort, { once: true });
    if (limit.aborted) onAbort();
    work.then(resolve, reject).finally(() => limit.removeEventListener('abort', onAbort));
  });
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? (error as Error).name;
}
