import { BlockList, isIP } from 'node:net';
import { hostMatches, type HostPattern } from './host-pattern.js';

/** The operator's network: what sandboxes may reach besides public addresses, and how the gateway connects. */
export interface EgressNetwork {
  /** Names that may have private addresses. */
  privateHosts: readonly PrivateHost[];
  /** The proxy for all outbound connections. Default: none. */
  proxy?: OutboundProxy | undefined;
  /** Certificates of the company's authorities, which are trusted besides the usual ones; each in PEM. */
  certificates?: readonly string[] | undefined;
}

/** A listed name, or all names below one. It never stands for addresses. */
export interface PrivateHost {
  host: HostPattern;
  ports: readonly number[];
}

/** An HTTP proxy that connects on request (`CONNECT`). */
export interface OutboundProxy {
  /** `http:` or `https:`, with user name and password if it requires them. A secret. */
  url: string;
  /** Connected to without the proxy. */
  direct: readonly DirectHost[];
  /**
   * Whether the proxy resolves names. Otherwise they are resolved here, and the proxy gets the address that was checked.
   */
  resolves: boolean;
  /** The setting that has the URL. Default: EGRESS_PROXY. */
  setting?: string;
}

export interface DirectHost {
  /** A pattern, an IP address, or a range of addresses as in `10.0.0.0/8`. */
  host: HostPattern | string;
  /** Default: all ports. */
  port?: number | undefined;
}

/** A network without any of it. */
export const PLAIN_NETWORK: EgressNetwork = { privateHosts: [] };

/**
 * How the operator has listed a name at a port: on its own, or only by a pattern such as `*.corp.example`. `undefined`:
 * not at all.
 */
export function listingOf(
  listed: readonly PrivateHost[],
  name: string,
  port: number,
): HostPattern['kind'] | undefined {
  const kinds = listed
    .filter(({ host, ports }) => ports.includes(port) && hostMatches([host], name))
    .map(({ host }) => host.kind);
  return kinds.includes('exact') ? 'exact' : kinds[0];
}

/** Whether the gateway connects to a host without the proxy. @param host a name or an IP address */
export function isDirect({ direct }: OutboundProxy, host: string, port: number): boolean {
  return direct.some((entry) => {
    if (entry.port !== undefined && entry.port !== port) return false;
    return typeof entry.host === 'string'
      ? isIP(host) !== 0 && isWithin(host.toLowerCase(), entry.host)
      : hostMatches([entry.host], host);
  });
}

/** Whether an address is another one, or in a range of addresses. */
function isWithin(address: string, other: string): boolean {
  const [base = '', bits] = other.split('/');
  if (bits === undefined) return address === other;
  const list = new BlockList();
  list.addSubnet(base, Number(bits), familyOf(base));
  return list.check(address, familyOf(address));
}

function familyOf(address: string): 'ipv4' | 'ipv6' {
  return isIP(address) === 4 ? 'ipv4' : 'ipv6';
}
