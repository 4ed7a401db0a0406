/** What every filter refuses, whoever enforces it. Numbers by architecture; a name is the kernel's. */
export type Numbers = readonly [x64: number | null, arm64: number | null];

export const EPERM = 1;
export const ENOSYS = 38;
export const EAFNOSUPPORT = 97;

/** System calls that open attack surface of the kernel or reach beyond the sandbox, and that no agent needs. */
export const REFUSED: Record<string, Numbers> = {
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
export const ABSENT: Record<string, Numbers> = {
  clone3: [435, 435],
  io_uring_setup: [425, 425],
  io_uring_enter: [426, 426],
  io_uring_register: [427, 427],
};

/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; NEWTIME is 0x80 and a signal number in clone(). */
export const NAMESPACE_FLAGS = 0x7e020000;
export const NEW_TIME_NAMESPACE = 0x80;
/** TIOCSTI and TIOCLINUX: typing into the terminal of another. */
export const TERMINAL_INJECTIONS: readonly number[] = [0x5412, 0x541c];
/** Unix, IPv4, IPv6, and netlink: the families of sockets that there are, the last only for routes. */
export const SOCKET_FAMILIES = [1, 2, 10, 16] as const;
