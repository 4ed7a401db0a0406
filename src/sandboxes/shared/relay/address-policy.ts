import { BlockList, isIPv4, isIPv6 } from 'node:net';
import { networkInterfaces } from 'node:os';

/**
 * IPv4 that is not the public internet, by the IANA special-purpose registry. The three documentation networks
 * (192.0.2.0/24, 198.51.100.0/24, 203.0.113.0/24) are left out on purpose: nothing private lives there, and test
 * networks use them as their public side.
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

/** Within global unicast (2000::/3), what is not public. Everything outside of it is refused without being listed. */
const DENIED_IPV6: readonly (readonly [network: string, prefix: number, why: string])[] = [
  ['2001::', 23, 'reserved'],
  ['2001:db8::', 32, 'reserved'],
  ['3fff::', 20, 'reserved'],
];

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

// One list per family: in a shared one, Node matches IPv4 addresses against IPv4-mapped IPv6 rules and the reverse.
const IPV4_RULES = compile(DENIED_IPV4, 'ipv4');
const IPV6_RULES = compile(DENIED_IPV6, 'ipv6');

/** The addresses of this machine's own interfaces, public ones included: behind them are the host's own services. */
export function hostAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap((list) =>
    (list ?? []).map((entry) => entry.address),
  );
}

/**
 * May a sandbox be connected to this address?
 * @param address an IP address, as a resolver gives it
 * @param own further addresses to refuse, see {@link hostAddresses}
 * @returns `undefined` if it may, else the reason in a word or two
 */
export function refusalOfAddress(address: string, own: readonly string[] = []): string | undefined {
  if (isIPv4(address)) {
    const why = IPV4_RULES.find((rule) => rule.list.check(address, 'ipv4'))?.why;
    return why ?? (own.includes(address) ? 'own host' : undefined);
  }
  // A zone (`fe80::1%eth0`) only belongs to addresses that are no one else's business.
  if (!isIPv6(address) || address.includes('%')) return 'not an address';

  const groups = ipv6Groups(address);
  const embedded = embeddedIpv4(groups);
  if (embedded !== undefined) return refusalOfAddress(embedded, own);
  if (groups.every((group, i) => group === (i === 7 ? 1 : 0))) return 'loopback';
  if (groups.every((group) => group === 0)) return 'unspecified';

  const first = groups[0] ?? 0;
  if ((first & 0xff00) === 0xff00) return 'multicast';
  if ((first & 0xfe00) === 0xfc00) return 'private';
  if ((first & 0xff80) === 0xfe80) return 'link-local';
  if ((first & 0xe000) !== 0x2000) return 'reserved';
  if (own.some((other) => isIPv6(other) && ipv6Groups(other).join() === groups.join()))
    return 'own host';
  return IPV6_RULES.find((rule) => rule.list.check(address, 'ipv6'))?.why;
}

/** The IPv4 address that packets to this IPv6 address end at: mapped (::ffff:0:0/96), NAT64 (64:ff9b::/96), 6to4 (2002::/16). */
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
