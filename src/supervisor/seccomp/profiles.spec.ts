import { describe, expect, it } from '@jest/globals';
import { seccompFilter, type SeccompProfile } from './profiles.js';

const ARCHITECTURES = { x64: 0xc000003e, arm64: 0xc00000b7 } as const;
type Architecture = keyof typeof ARCHITECTURES;
const ALLOW = 0x7fff0000;
const KILL = 0x80000000;
const errno = (n: number): number => 0x00050000 + n;

/** What the kernel would do: runs the classic BPF program over one system call. */
function verdict(
  architecture: Architecture,
  number: number,
  args: readonly bigint[] = [],
  profile: SeccompProfile = 'agent',
  audit: number = ARCHITECTURES[architecture],
): number {
  const program = seccompFilter(profile, architecture);
  const data = Buffer.alloc(64);
  data.writeUInt32LE(number, 0);
  data.writeUInt32LE(audit, 4);
  for (const [i, value] of args.entries()) data.writeBigUInt64LE(value, 16 + 8 * i);
  let accumulator = 0;
  for (let pc = 0; pc < program.length / 8; pc += 1) {
    const code = program.readUInt16LE(pc * 8);
    const k = program.readUInt32LE(pc * 8 + 4);
    if (code === 0x20) accumulator = data.readUInt32LE(k);
    else if (code === 0x06) return k;
    else {
      const holds =
        code === 0x15
          ? accumulator === k
          : code === 0x35
            ? accumulator >= k
            : (accumulator & k) !== 0;
      pc += program.readUInt8(pc * 8 + (holds ? 2 : 3));
    }
  }
  throw new Error('the program ran off its end');
}

describe.each([
  [
    'x64',
    {
      read: 0,
      mount: 165,
      clone: 56,
      unshare: 272,
      ioctl: 16,
      socket: 41,
      socketpair: 53,
      fchown: 93,
      setns: 308,
      ptrace: 101,
      readOther: 310,
      personality: 135,
      prctl: 157,
      futex: 202,
    },
  ],
  [
    'arm64',
    {
      read: 63,
      mount: 40,
      clone: 220,
      unshare: 97,
      ioctl: 29,
      socket: 198,
      socketpair: 199,
      fchown: 55,
      setns: 268,
      ptrace: 117,
      readOther: 270,
      personality: 92,
      prctl: 167,
      futex: 98,
    },
  ],
] as const)('the seccomp filter on %s', (architecture, call) => {
  const of = (number: number, ...args: bigint[]): number => verdict(architecture, number, args);

  it('lets ordinary work through', () => {
    expect(of(call.read)).toBe(ALLOW);
    expect(of(call.clone, 0x003d0f00n)).toBe(ALLOW);
    expect(of(call.unshare, 0x200n)).toBe(ALLOW);
    expect(of(call.clone, 17n)).toBe(ALLOW);
    expect(of(436, 3n, 99n, 4n)).toBe(ALLOW);
    expect(of(call.prctl, 15n, 0n)).toBe(ALLOW);
    expect(of(call.ioctl, 0n, 0x5401n)).toBe(ALLOW);
    for (const family of [1n, 2n, 10n]) expect(of(call.socket, family, 1n, 0n)).toBe(ALLOW);
    expect(of(call.socket, 16n, 3n, 0n)).toBe(ALLOW);
    expect(of(call.fchown)).toBe(ALLOW);
  });

  it('refuses mounts and every new namespace', () => {
    expect(of(call.mount)).toBe(errno(1));
    expect(of(call.setns)).toBe(errno(1));
    for (const flag of [
      0x20000n,
      0x2000000n,
      0x4000000n,
      0x8000000n,
      0x10000000n,
      0x20000000n,
      0x40000000n,
    ]) {
      expect(of(call.clone, flag | 17n)).toBe(errno(1));
      expect(of(call.unshare, flag)).toBe(errno(1));
    }
    expect(of(call.unshare, 0x80n)).toBe(errno(1));
    expect(of(435)).toBe(errno(38));
  });

  it('lets no program look into another, or switch protections off', () => {
    const getFd = 438;
    for (const number of [call.ptrace, call.readOther, getFd]) expect(of(number)).toBe(errno(1));
    for (const harmless of [0n, 8n, 0xffffffffn]) {
      expect(of(call.personality, harmless)).toBe(ALLOW);
    }
    const noRandomisation = 0x40000n;
    expect(of(call.personality, noRandomisation)).toBe(errno(1));
  });

  it('lets no process hide from inspection', () => {
    const thread = 0x003d0b00n;
    expect(of(call.clone, thread)).toBe(errno(1));
    expect(of(call.unshare, 0x400n)).toBe(errno(1));
    expect(of(436, 3n, 99n, 2n)).toBe(errno(1));
    const dumpable = 4n;
    expect(of(call.prctl, dumpable, 0n)).toBe(errno(0));
    expect(of(call.prctl, dumpable, 1n)).toBe(ALLOW);
  });

  it('answers what it does not know as a kernel that does not have it', () => {
    const [memfdSecret, statmount, listmount] = [447, 457, 458];
    const notYetInvented = 600;
    for (const number of [memfdSecret, statmount, listmount, notYetInvented]) {
      expect(of(number)).toBe(errno(38));
    }
    expect(of(call.futex)).toBe(ALLOW);
  });

  it('refuses typing into a terminal, whatever the upper half of the argument is', () => {
    for (const command of [0x5412n, 0x541cn, 0xdeadbeef00005412n]) {
      expect(of(call.ioctl, 0n, command)).toBe(errno(1));
    }
  });

  it('refuses other families of sockets', () => {
    for (const family of [4n, 17n, 29n, 38n, 40n]) {
      expect(of(call.socket, family, 1n, 0n)).toBe(errno(97));
      expect(of(call.socketpair, family, 1n, 0n)).toBe(errno(97));
    }
    expect(of(call.socket, 16n, 3n, 12n)).toBe(errno(97));
  });

  it('pretends to change owners for setup alone', () => {
    expect(verdict(architecture, call.fchown, [], 'setup')).toBe(errno(0));
    expect(verdict(architecture, call.mount, [], 'setup')).toBe(errno(1));
  });

  it('ends what calls by another architecture', () => {
    const i386 = 0x40000003;
    expect(verdict(architecture, call.read, [], 'agent', i386)).toBe(KILL);
  });
});

it('has no way around it by the x32 interface', () => {
  expect(verdict('x64', 0x40000000 + 165)).toBe(errno(38));
});

it('is not made for an architecture without a table', () => {
  expect(() => seccompFilter('agent', 'riscv64')).toThrow('riscv64');
});
