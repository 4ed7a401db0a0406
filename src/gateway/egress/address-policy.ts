import { BlockList, isIPv4, isIPv6 } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { HostPattern } from '../../common/host-pattern.js';

/**
 * IPv4 networks that are not public, according to the IANA special-purpose registry. The three documentation networks
 * (192.0.2.0/24, 198.51.100.0/24, 203.0.113.0/24) are omitted on purpose, because they are never private and test
 * networks use them as public addresses.
 */
const DENIED_IPV4: readonly (readonly [network: string, prefix: number, why: string])[] = [
  ['0.0.0.0', 8, 'unspecified'],
  ['10.0.0.0', 8, 'private'],
  ['100.64.0.0', 10, 'carrier-grade NAT'],
  ['127.0.0.0', 8, 'loopback'],
  ['168.63.129.16', 32, 'cloud metadata'],
  ['169.254.0.0', 16, 'link-local'],
  ['172.16.0.0', 12, 'private'],
  ['192.0.0.0', 24, 'reserved'],
  ['192.88.99.0', 24, 'reserved'],
  ['192.168.0.0', 16, 'private'],
  ['198.18.0.0', 15, 'reserved'],
  ['224.0.0.0', 4, 'multicast'],
  ['255.255.255.255', 32, 'broadcast'],
  ['240.0.0.0', 4, 'reserved'],
];

/** Networks in global unicast (2000::/3) that are not public. Everything else outside of 2000::/3 is refused anyway. */
const DENIED_IPV6: readonly (readonly [network: string, prefix: number, why: string])[] = [
  ['2001::', 23, 'reserved'],
  ['2001:db8::', 32, 'reserved'],
  ['3fff::', 20, 'reserved'],
];

/** Where clouds serve the credentials of their machines. These addresses lie in networks that are private otherwise. */
const METADATA = ['100.100.100.200', 'fd00:ec2::254', 'fd20:ce::254'];

/** The networks of companies. Names that the operator has listed may have these addresses. */
const COMPANY_NETWORKS = new Set(['private', 'carrier-grade NAT']);

interface Rule {
  list: BlockList;
  why: string;
}

function compile(
  rules: readonly (readonly [string, number, string])[],
  family: 'ipv4' | 'ipv6',
): Rule[] {
  return rules.map(([network, prefix, why]) => {
    const list = new BlockList();
    list.addSubnet(network, prefix, family);
    return { list, why };
  });
}

// One list for each family, because in a shared one Node matches IPv4 addresses against IPv4-mapped IPv6 rules and vice
// versa.
const IPV4_RULES = compile(DENIED_IPV4, 'ipv4');
const IPV6_RULES = compile(DENIED_IPV6, 'ipv6');

/**
 * The addresses of this machine's own interfaces, including public ones, because the host's own services listen on
 * them.
 */
export function hostAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap((list) =>
    (list ?? []).map((entry) => entry.address),
  );
}

/**
 * Decides whether a sandbox may connect to this address.
 * @param address an IP address, as a resolver returns it
 * @param own further addresses to refuse, see {@link hostAddresses}
 * @param listing how the operator has listed the name that has this address, see EgressNetwork. A listed name may have a
 *   private address. It may have one of this machine's own addresses if it is listed on its own: many people may be
 *   able to create names that match a pattern.
 * @returns `undefined` if it may, otherwise the reason in a few words
 */
export function refusalOfAddress(
  address: string,
  own: readonly string[] = [],
  listing?: HostPattern['kind'],
): string | undefined {
  const refused = listing === 'exact' ? [] : own;
  if (isIPv4(address)) {
    const why = IPV4_RULES.find((rule) => rule.list.check(address, 'ipv4'))?.why;
    if (listing !== undefined && METADATA.includes(address)) return 'cloud metadata';
    if (why !== undefined && (listing === undefined || !COMPANY_NETWORKS.has(why))) return why;
    return refused.includes(address) ? 'own host' : undefined;
  }
  // Only link-local addresses have a zone (`fe80::1%eth0`), and those are refused.
  if (!isIPv6(address) || address.includes('%')) return 'not an address';

  const groups = ipv6Groups(address);
  const embedded = embeddedIpv4(groups);
  if (embedded !== undefined) return refusalOfAddress(embedded, own, listing);
  if (groups.every((group, i) => group === (i === 7 ? 1 : 0))) return 'loopback';
  if (groups.every((group) => group === 0)) return 'unspecified';

  const first = groups[0] ?? 0;
  if ((first & 0xff00) === 0xff00) return 'multicast';
  const isSame = (other: string): boolean =>
    isIPv6(other) && ipv6Groups(other).join() === groups.join();
  if ((first & 0xfe00) === 0xfc00) {
    if (listing === undefined) return 'private';
    if (METADATA.some(isSame)) return 'cloud metadata';
    return refused.some(isSame) ? 'own host' : undefined;
  }
  if ((first & 0xff80) === 0xfe80) return 'link-local';
  if ((first & 0xe000) !== 0x2000) return 'reserved';
  if (refused.some(isSame)) return 'own host';
  return IPV6_RULES.find((rule) => rule.list.check(address, 'ipv6'))?.why;
}

/**
 * The embedded IPv4 address that packets to this IPv6 address go to: mapped (::ffff:0:0/96), NAT64 (64:ff9b::/96) or
 * 6to4 (2002::/16).
 */
function embeddedIpv4(groups: readonly number[]): string | undefined {
  const dotted = (high = 0, low = 0): string =>
    [high >> 8, high & 0xff, low >> 8, low & 0xff].join('.');
  const startsWith = (...prefix: number[]): boolean => prefix.every((g, i) => groups[i] === g);
  if (startsWith(0, 0, 0, 0, 0, 0xffff)) return dotted(groups[6], groups[7]);
  if (startsWith(0x64, 0xff9b, 0, 0, 0, 0)) return dotted(groups[6], groups[7]);
  if (startsWith(0x2002)) return dotted(groups[1], groups[2]);
  return undefined;
}

/** The eight 16-bit groups of a valid IPv6 address; a zone is ignored. */
function ipv6Groups(address: string): number[] {
  let text = address.split('%')[0] ?? '';
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(text);
  if (dotted) {
    const [a, b, c, d] = dotted.slice(2).map(Number) as [number, number, number, number];
    text = `${dotted[1]}${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
  }
  const [head = '', tail] = text.split('::');
  const parse = (part: string): number[] =>
    part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16));
  const left = parse(head);
  if (tail === undefined) return left;
  const right = parse(tail);
  return [...left, ...Array<number>(8 - left.length - right.length).fill(0), ...right];
}

/** A host and port as they are compared: `localhost` is the same as its address. */
export function endpointOf(host: string, port: number): string {
  const name = host.toLowerCase();
  return `${name === 'localhost' ? '127.0.0.1' : name}:${port}`;
}
