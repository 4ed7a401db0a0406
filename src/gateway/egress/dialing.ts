import { type Socket, connect } from 'node:net';
import {
  type EgressNetwork,
  isDirect,
  listingOf,
  PLAIN_NETWORK,
} from '../../common/egress-network.js';
import { hostMatches, normalizeHostName } from '../../common/host-pattern.js';
import { hostAddresses, refusalOfAddress } from './address-policy.js';
import { DialError, type Egress, type Target } from './connections.js';
import { connectThrough, ProxyError } from './proxy.js';
import { hostResolver, isMissing, type Resolve } from './resolving.js';

/** Connects a socket with half-open allowed. Rejects on failure or abort, leaving nothing open. */
export type Dial = (target: {
  address: string;
  port: number;
  signal: AbortSignal;
}) => Promise<Socket>;

const RESOLVE_TIMEOUT_MS = 10_000;
const CONNECT_TIMEOUT_MS = 10_000;
const KEEPALIVE_MS = 60_000;
/** A timeout, because a name with many dead addresses must not block a connection for minutes. */
const MAX_ATTEMPTS = 4;

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

/**
 * Resolves names and connects in this process.
 * @param network what the operator has allowed besides public addresses, and the proxy to use
 */
export function hostEgress(
  resolve: Resolve = hostResolver(),
  dial: Dial = dialFromHost,
  network: EgressNetwork = PLAIN_NETWORK,
): Egress {
  return {
    connect: (target, signal) => dialTarget(target, { resolve, dial, network, signal }),
    exists: async (host, signal) => {
      if (network.proxy?.resolves) return true;
      // The proxy may know a listed name that is unknown here, see dialTarget.
      const isListed = hostMatches(
        network.privateHosts.map((listed) => listed.host),
        host,
      );
      if (network.proxy && isListed) return true;
      try {
        const found = await resolveInTime(resolve, { host, isGateway: false }, signal);
        return found.length > 0;
      } catch (error) {
        if (isMissing(error)) return false;
        throw error;
      }
    },
  };
}

/**
 * Resolves a target, checks every address, and connects to the allowed ones in order until one accepts. It
 * connects to exactly the address that was checked, so that a second DNS answer cannot bypass the check.
 *
 * This also applies behind a proxy: the proxy is given the address. It is only given a name that the operator has
 * configured or listed and that does not resolve here, or any name if the operator leaves resolving to the proxy.
 * @throws DialError
 */
export async function dialTarget(
  target: Target,
  {
    resolve,
    dial,
    network = PLAIN_NETWORK,
    signal,
  }: { resolve: Resolve; dial: Dial; network?: EgressNetwork; signal: AbortSignal },
): Promise<Socket> {
  const { host, port, isGateway } = target;
  const proxy = proxyFor(target, network);
  const reach: Dial = proxy === undefined ? dial : (to) => connectThrough(proxy, to);
  if (proxy !== undefined && isGateway) return tryEach([host], { port, reach, signal });
  const listing = isGateway ? undefined : listingOf(network.privateHosts, host, port);
  const isLeftToProxy =
    proxy !== undefined && (listing !== undefined || (proxy.resolves && isPublicName(host)));
  let addresses: readonly string[];
  try {
    addresses = await resolveInTime(resolve, target, signal);
  } catch (error) {
    if (isLeftToProxy) return tryEach([host], { port, reach, signal });
    throw new DialError('failed', `does not resolve: ${codeOf(error)}`);
  }
  const own = isGateway ? [] : hostAddresses();
  let refusal: string | undefined;
  const vetted = addresses.filter((address) => {
    if (isGateway) return true;
    const why = refusalOfAddress(address, own, listing);
    refusal ??= why;
    return why === undefined;
  });
  if (vetted.length === 0) {
    throw new DialError(
      refusal === undefined ? 'failed' : 'refused',
      refusal === undefined ? 'does not resolve' : `resolves to a forbidden address: ${refusal}`,
    );
  }
  const hosts = proxy?.resolves && isPublicName(host) ? [host] : vetted.slice(0, MAX_ATTEMPTS);
  return tryEach(hosts, { port, reach, signal });
}

/** Connects to the first of the hosts that accepts. @throws DialError */
async function tryEach(
  hosts: readonly string[],
  { port, reach, signal }: { port: number; reach: Dial; signal: AbortSignal },
): Promise<Socket> {
  let failure: unknown;
  for (const address of hosts) {
    signal.throwIfAborted();
    const attempt = AbortSignal.any([signal, AbortSignal.timeout(CONNECT_TIMEOUT_MS)]);
    try {
      return await reach({ address, port, signal: attempt });
    } catch (error) {
      if (error instanceof ProxyError && error.isRefusal)
        throw new DialError('refused', error.message, { cause: error });
      failure = error;
    }
  }
  const why = failure instanceof ProxyError ? failure.message : codeOf(failure);
  throw new DialError('failed', `does not connect: ${why}`, { cause: failure });
}

/** The proxy for a target. No proxy reaches the loopback addresses of this machine. */
function proxyFor({ host, port, isGateway }: Target, { proxy }: EgressNetwork) {
  const isLoopback = isGateway && /^(localhost|.*\.localhost|127\..*|::1)$/i.test(host);
  return isLoopback || proxy === undefined || isDirect(proxy, host, port) ? undefined : proxy;
}

/** Whether a proxy that resolves names may get this one: not a name of its own host or network. */
function isPublicName(host: string): boolean {
  const name = normalizeHostName(host);
  return name !== undefined && name.includes('.') && !name.endsWith('.localhost');
}

/** Some resolvers cannot be cancelled; then only the result is ignored. */
function resolveInTime(
  resolve: Resolve,
  { host, isGateway }: Pick<Target, 'host' | 'isGateway'>,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(RESOLVE_TIMEOUT_MS)]);
  return new Promise((fulfil, reject) => {
    const onAbort = (): void => reject(limit.reason as Error);
    limit.addEventListener('abort', onAbort, { once: true });
    if (limit.aborted) onAbort();
    resolve(host, { isGateway, signal: limit })
      .then(fulfil, reject)
      .finally(() => limit.removeEventListener('abort', onAbort));
  });
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? (error as Error).name;
}
