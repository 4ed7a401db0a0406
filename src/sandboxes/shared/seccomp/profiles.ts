import { assembleFilter, type Action, type Architecture, type SyscallRule } from './assembler.js';

/** `agent`: what every runtime gets. `setup`: the same, and pretends that changes of ownership and identity succeed. */
export type SeccompProfile = 'agent' | 'setup';

type Numbers = readonly [x64: number | null, arm64: number | null];

const EPERM = 1;
const ENOSYS = 38;
const EAFNOSUPPORT = 97;

/** System calls that open attack surface of the kernel or reach beyond the sandbox, and that no agent needs. */
const REFUSED: Record<string, Numbers> = {
  mount: [165, 40],
  umount2: [166, 39],
  pivot_root: [155, 41],
  open_tree: [428, 428],
  move_mount: [429, 429],
  fsopen: [430, 430],
  fsconfig: [431, 431],
  fsmount: [432, 432],
  fspick: [433, 433],
  mount_setattr: [442, 442],
  open_tree_attr: [467, 467],
  setns: [308, 268],
  add_key: [248, 217],
  request_key: [249, 218],
  keyctl: [250, 219],
  bpf: [321, 280],
  perf_event_open: [298, 241],
  userfaultfd: [323, 282],
  name_to_handle_at: [303, 264],
  open_by_handle_at: [304, 265],
  fanotify_init: [300, 262],
  kexec_load: [246, 104],
  kexec_file_load: [320, 294],
  init_module: [175, 105],
  finit_module: [313, 273],
  delete_module: [176, 106],
  reboot: [169, 142],
  swapon: [167, 224],
  swapoff: [168, 225],
  acct: [163, 89],
  quotactl: [179, 60],
  quotactl_fd: [443, 443],
  lookup_dcookie: [212, 18],
  iopl: [172, null],
  ioperm: [173, null],
  syslog: [103, 116],
  settimeofday: [164, 170],
  clock_settime: [227, 112],
  vhangup: [153, 58],
};

/** Answered as a kernel that does not have them, so that libraries take their older way. */
const ABSENT: Record<string, Numbers> = {
  clone3: [435, 435],
  io_uring_setup: [425, 425],
  io_uring_enter: [426, 426],
  io_uring_register: [427, 427],
};

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

/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; NEWTIME is 0x80 and a signal number in clone(). */
const NEW_NAMESPACES = 0x7e020000;
const NEW_TIME_NAMESPACE = 0x80;
const TIOCSTI = 0x5412;
const TIOCLINUX = 0x541c;
const [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK] = [1, 2, 10, 16];
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
    tests: [{ when: [{ index: 0, anyBit: NEW_NAMESPACES }], action: refuse }],
    otherwise: 'allow',
  });
  add(UNSHARE, {
    tests: [{ when: [{ index: 0, anyBit: NEW_NAMESPACES | NEW_TIME_NAMESPACE }], action: refuse }],
    otherwise: 'allow',
  });
  add(IOCTL, {
    tests: [{ when: [{ index: 1, equals: [TIOCSTI, TIOCLINUX] }], action: refuse }],
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
