import { assembleFilter, type Action, type Architecture, type SyscallRule } from './assembler.js';
import {
  ABSENT,
  EAFNOSUPPORT,
  ENOSYS,
  EPERM,
  NAMESPACE_FLAGS,
  NEW_TIME_NAMESPACE,
  type Numbers,
  REFUSED,
  SOCKET_FAMILIES,
  TERMINAL_INJECTIONS,
} from './tables.js';

/** `agent`: what every runtime gets. `setup`: the same, and pretends that changes of ownership and identity succeed. */
export type SeccompProfile = 'agent' | 'setup';

/**
 * One kernel user owns everything in a sandbox, so a package manager's chown and setuid would fail, and aborting the
 * installation helps nobody.
 */
const PRETENDED: Record<string, Numbers> = {
  chown: [92, null],
  fchown: [93, 55],
  lchown: [94, null],
  fchownat: [260, 54],
  setuid: [105, 146],
  setgid: [106, 144],
  setreuid: [113, 145],
  setregid: [114, 143],
  setgroups: [116, 159],
  setresuid: [117, 147],
  setresgid: [119, 149],
  setfsuid: [122, 151],
  setfsgid: [123, 152],
  capset: [126, 91],
};

const CLONE: Numbers = [56, 220];
const UNSHARE: Numbers = [272, 97];
const IOCTL: Numbers = [16, 29];
const SOCKET: Numbers = [41, 198];
const SOCKETPAIR: Numbers = [53, 199];

const [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK] = SOCKET_FAMILIES;
const NETLINK_ROUTE = 0;

function rulesFor(column: 0 | 1, profile: SeccompProfile): SyscallRule[] {
  const rules: SyscallRule[] = [];
  const add = (numbers: Numbers, rule: Omit<SyscallRule, 'number'>): void => {
    const number = numbers[column];
    if (number !== null) rules.push({ number, ...rule });
  };
  const answerAll = (table: Record<string, Numbers>, otherwise: Action): void => {
    for (const numbers of Object.values(table)) add(numbers, { otherwise });
  };
  answerAll(REFUSED, { errno: EPERM });
  answerAll(ABSENT, { errno: ENOSYS });
  if (profile === 'setup') answerAll(PRETENDED, { errno: 0 });

  const refuse: Action = { errno: EPERM };
  add(CLONE, {
    tests: [{ when: [{ index: 0, anyBit: NAMESPACE_FLAGS }], action: refuse }],
    otherwise: 'allow',
  });
  add(UNSHARE, {
    tests: [{ when: [{ index: 0, anyBit: NAMESPACE_FLAGS | NEW_TIME_NAMESPACE }], action: refuse }],
    otherwise: 'allow',
  });
  add(IOCTL, {
    tests: [{ when: [{ index: 1, equals: TERMINAL_INJECTIONS }], action: refuse }],
    otherwise: 'allow',
  });
  add(SOCKET, {
    tests: [
      { when: [{ index: 0, equals: [AF_UNIX, AF_INET, AF_INET6] }], action: 'allow' },
      {
        when: [
          { index: 0, equals: [AF_NETLINK] },
          { index: 2, equals: [NETLINK_ROUTE] },
        ],
        action: 'allow',
      },
    ],
    otherwise: { errno: EAFNOSUPPORT },
  });
  add(SOCKETPAIR, {
    tests: [{ when: [{ index: 0, equals: [AF_UNIX] }], action: 'allow' }],
    otherwise: { errno: EAFNOSUPPORT },
  });
  return rules;
}

/**
 * The filter of a profile for a processor architecture as Node names it.
 * @throws Error if the architecture has no table here: running without a filter is not an option.
 */
export function seccompFilter(profile: SeccompProfile, architecture: string): Buffer {
  if (architecture !== 'x64' && architecture !== 'arm64') {
    throw new Error(`no seccomp profile for the processor architecture ${architecture}`);
  }
  const known: Architecture = architecture;
  return assembleFilter(known, rulesFor(known === 'x64' ? 0 : 1, profile));
}
