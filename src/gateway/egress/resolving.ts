import { lookup, Resolver } from 'node:dns/promises';
import { readFile, stat } from 'node:fs/promises';
import { isIP } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

/**
 * Returns all addresses of a name in the order in which to try them. If there are none, it rejects with one of the
 * codes of {@link isMissing}; if that is unknown, with another code.
 */
export type Resolve = (
  host: string,
  options: { isGateway: boolean; signal: AbortSignal },
) => Promise<readonly string[]>;

export interface ResolverOptions {
  /** Name servers as `address` or `address:port`. Default: the host's. */
  servers?: readonly string[];
  /** Default: the host's. */
  hostsFile?: string;
}

const QUERY_TIMEOUT_MS = 2_500;
const TRIES = 2;
/** How much longer the IPv6 lookup may take than the IPv4 lookup. */
const SECOND_FAMILY_MS = 300;
const HOSTS_FILE_CHECK_MS = 5_000;

/** Whether this error of a resolver means that the name has no address, rather than that the lookup failed. */
export function isMissing(error: unknown): boolean {
  return ['ENOTFOUND', 'ENODATA'].includes((error as NodeJS.ErrnoException).code ?? '');
}

/**
 * Resolves on this host. Names that sandboxes choose are looked up without threads: `getaddrinfo` has only a few, so
 * names with dead name servers would block all lookups. The hosts file is used but the search list is not, because a
 * sandbox must use full names. Gateways are few and chosen by the operator, so the host's own resolver looks them up.
 */
export function hostResolver(options: ResolverOptions = {}): Resolve {
  const hostsFile = new HostsFile(options.hostsFile ?? '/etc/hosts');
  const gateways = new Map<string, Promise<readonly string[]>>();
  return async (host, { isGateway, signal }) => {
    if (isGateway) {
      const known = gateways.get(host);
      if (known) return known;
      const asked = lookUpGateway(host).finally(() => gateways.delete(host));
      gateways.set(host, asked);
      return asked;
    }
    const local = await hostsFile.addressesOf(host);
    return local.length > 0 ? local : askNameServers(host, options.servers, signal);
  };
}

async function lookUpGateway(host: string): Promise<readonly string[]> {
  return (await lookup(host, { all: true, order: 'verbatim' })).map((entry) => entry.address);
}

/** Uses its own resolver, so that cancelling a lookup or a silent server does not affect other lookups. */
async function askNameServers(
  host: string,
  servers: readonly string[] | undefined,
  signal: AbortSignal,
): Promise<readonly string[]> {
  signal.throwIfAborted();
  const resolver = new Resolver({ timeout: QUERY_TIMEOUT_MS, tries: TRIES });
  if (servers) resolver.setServers(servers);
  const cancel = (): void => resolver.cancel();
  signal.addEventListener('abort', cancel, { once: true });
  const asIpv6 = resolver.resolve6(host).catch((error: unknown) => error as Error);
  try {
    const ipv4 = await resolver.resolve4(host).catch((error: unknown) => error as Error);
    const ipv6 = Array.isArray(ipv4)
      ? await Promise.race([asIpv6, delay(SECOND_FAMILY_MS, [], { ref: false })])
      : await asIpv6;
    if (Array.isArray(ipv4) || Array.isArray(ipv6)) {
      return alternating(Array.isArray(ipv4) ? ipv4 : [], Array.isArray(ipv6) ? ipv6 : []);
    }
    // The family whose lookup failed may have an address.
    throw isMissing(ipv4) ? ipv6 : ipv4;
  } finally {
    signal.removeEventListener('abort', cancel);
    resolver.cancel();
  }
}

/** Alternates between the families, so that a host without a route for one of them soon tries the other. */
function alternating(first: readonly string[], second: readonly string[]): string[] {
  const length = Math.max(first.length, second.length);
  return Array.from({ length }, (_, i) => [first[i], second[i]])
    .flat()
    .filter((address) => address !== undefined);
}

/** The hosts file, which is read again after it has changed. */
class HostsFile {
  private names = new Map<string, string[]>();
  private stamp = '';
  private checkedAt = Number.NEGATIVE_INFINITY;

  constructor(private readonly path: string) {}

  async addressesOf(host: string): Promise<readonly string[]> {
    const now = performance.now();
    if (now - this.checkedAt > HOSTS_FILE_CHECK_MS) {
      this.checkedAt = now;
      await this.refresh().catch(() => this.names.clear());
    }
    return this.names.get(host.toLowerCase()) ?? [];
  }

  private async refresh(): Promise<void> {
    const { mtimeMs, ino, size } = await stat(this.path);
    const stamp = [mtimeMs, ino, size].join();
    if (stamp === this.stamp) return;
    const names = new Map<string, string[]>();
    for (const line of (await readFile(this.path, 'utf8')).split('\n')) {
      const [address = '', ...hosts] = line.replace(/#.*/, '').trim().split(/\s+/);
      if (isIP(address) === 0) continue;
      for (const host of hosts) {
        const name = host.toLowerCase();
        names.set(name, [...(names.get(name) ?? []), address]);
      }
    }
    this.names = names;
    this.stamp = stamp;
  }
}
