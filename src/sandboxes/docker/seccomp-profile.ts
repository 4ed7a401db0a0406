import {
  ABSENT,
  ENOSYS,
  EPERM,
  EAFNOSUPPORT,
  NAMESPACE_FLAGS,
  NEW_TIME_NAMESPACE,
  REFUSED,
  SOCKET_FAMILIES,
  TERMINAL_INJECTIONS,
} from '../shared/seccomp/tables.js';

interface ArgumentRule {
  index: number;
  value: number;
  valueTwo?: number;
  op: 'SCMP_CMP_EQ' | 'SCMP_CMP_NE' | 'SCMP_CMP_GT' | 'SCMP_CMP_MASKED_EQ';
}

const LOW_WORD = 0xffff_ffff;

function refuse(names: string[], errnoRet: number, args: ArgumentRule[] = []) {
  return { names, action: 'SCMP_ACT_ERRNO', errnoRet, args };
}

/** The kernel reads 32 bits of these; a filter that compares all 64 could be walked past. */
const lowWordIs = (index: number, value: number): ArgumentRule => ({
  index,
  value: LOW_WORD,
  valueTwo: value,
  op: 'SCMP_CMP_MASKED_EQ',
});
const bitIsSet = (index: number, bit: number): ArgumentRule => ({
  index,
  value: bit,
  valueTwo: bit,
  op: 'SCMP_CMP_MASKED_EQ',
});

/** The flags of one word, each by itself. */
const bits = (word: number): number[] =>
  Array.from({ length: 32 }, (_, i) => 2 ** i).filter((bit) => (word & bit) !== 0);

/** The same filter that local sandboxes have, as a profile that the engine takes. */
export function seccompProfile(): string {
  const [, ipv4, ipv6, netlink] = SOCKET_FAMILIES;
  const known: readonly number[] = SOCKET_FAMILIES;
  const last = Math.max(...known);
  const others = Array.from({ length: last }, (_, family) => family).filter(
    (family) => !known.includes(family),
  );
  const isFamily = (family: number): ArgumentRule => ({
    index: 0,
    value: family,
    op: 'SCMP_CMP_EQ',
  });
  const above = (family: number): ArgumentRule => ({ index: 0, value: family, op: 'SCMP_CMP_GT' });
  return JSON.stringify({
    defaultAction: 'SCMP_ACT_ALLOW',
    archMap: [
      { architecture: 'SCMP_ARCH_X86_64', subArchitectures: ['SCMP_ARCH_X32'] },
      { architecture: 'SCMP_ARCH_AARCH64', subArchitectures: [] },
    ],
    syscalls: [
      refuse(Object.keys(REFUSED), EPERM),
      refuse(Object.keys(ABSENT), ENOSYS),
      ...bits(NAMESPACE_FLAGS).flatMap((bit) => [
        refuse(['clone'], EPERM, [bitIsSet(0, bit)]),
        refuse(['unshare'], EPERM, [bitIsSet(0, bit)]),
      ]),
      refuse(['unshare'], EPERM, [bitIsSet(0, NEW_TIME_NAMESPACE)]),
      ...TERMINAL_INJECTIONS.map((request) => refuse(['ioctl'], EPERM, [lowWordIs(1, request)])),
      ...others.map((family) => refuse(['socket'], EAFNOSUPPORT, [isFamily(family)])),
      refuse(['socket'], EAFNOSUPPORT, [above(last)]),
      refuse(['socket'], EAFNOSUPPORT, [
        isFamily(netlink),
        { index: 2, value: 0, op: 'SCMP_CMP_NE' },
      ]),
      ...[ipv4, ipv6, netlink, ...others].map((family) =>
        refuse(['socketpair'], EAFNOSUPPORT, [isFamily(family)]),
      ),
      refuse(['socketpair'], EAFNOSUPPORT, [above(last)]),
      // No raw sockets: without the right to them they could not be made either.
      ...[ipv4, ipv6].map((family) =>
        refuse(['socket'], EPERM, [isFamily(family), lowNibbleIs(1, 3)]),
      ),
    ],
  });
}

/** The type of a socket, without the flags that share its argument. */
function lowNibbleIs(index: number, value: number): ArgumentRule {
  return { index, value: 0xf, valueTwo: value, op: 'SCMP_CMP_MASKED_EQ' };
}
