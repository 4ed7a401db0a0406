import { assembleFilter, type Action, type Architecture, type SyscallRule } from './assembler.js';

/** The number of a system call for each architecture; `null` if it does not exist. */
export type Numbers = readonly [x64: number | null, arm64: number | null];

export const EPERM = 1;
export const ENOSYS = 38;
export const EAFNOSUPPORT = 97;

/** Reads a table of `name x64 arm64` entries; `-` if an architecture does not have the call. */
function read(table: string): Readonly<Record<string, Numbers>> {
  const number = (text = '-'): number | null => (text === '-' ? null : Number(text));
  return Object.fromEntries(
    table
      .split(/[|\n]/)
      .map((entry) => entry.trim().split(' '))
      .filter(([name]) => name !== '')
      .map(([name = '', x64, arm64]) => [name, [number(x64), number(arm64)] as const]),
  );
}

/**
 * Calls that are allowed with any arguments. Calls that are in no table fail with ENOSYS, as on a kernel that does not
 * have them, because libraries expect that of calls that are newer than their system.
 */
export const ALLOWED = read(`
  read 0 63 | write 1 64 | open 2 - | close 3 57 | stat 4 - | fstat 5 80 | lstat 6 - | poll 7 - | lseek 8 62
  mmap 9 222 | mprotect 10 226 | munmap 11 215 | brk 12 214 | rt_sigaction 13 134 | rt_sigprocmask 14 135
  rt_sigreturn 15 139 | pread64 17 67 | pwrite64 18 68 | readv 19 65 | writev 20 66 | access 21 - | pipe 22 -
  select 23 - | sched_yield 24 124 | mremap 25 216 | msync 26 227 | mincore 27 232 | madvise 28 233 | shmget 29 194
  shmat 30 196 | shmctl 31 195 | dup 32 23 | dup2 33 - | pause 34 - | nanosleep 35 101 | getitimer 36 102 | alarm 37 -
  setitimer 38 103 | getpid 39 172 | sendfile 40 71 | connect 42 203 | accept 43 202 | sendto 44 206 | recvfrom 45 207
  sendmsg 46 211 | recvmsg 47 212 | shutdown 48 210 | bind 49 200 | listen 50 201 | getsockname 51 204
  getpeername 52 205 | setsockopt 54 208 | getsockopt 55 209 | fork 57 - | vfork 58 - | execve 59 221 | exit 60 93
  wait4 61 260 | kill 62 129 | uname 63 160 | semget 64 190 | semop 65 193 | semctl 66 191 | shmdt 67 197
  msgget 68 186 | msgsnd 69 189 | msgrcv 70 188 | msgctl 71 187 | fcntl 72 25 | flock 73 32 | fsync 74 82
  fdatasync 75 83 | truncate 76 45 | ftruncate 77 46 | getdents 78 - | getcwd 79 17 | chdir 80 49 | fchdir 81 50
  rename 82 - | mkdir 83 - | rmdir 84 - | creat 85 - | link 86 - | unlink 87 - | symlink 88 - | readlink 89 -
  chmod 90 - | fchmod 91 52 | chown 92 - | fchown 93 55 | lchown 94 - | umask 95 166 | gettimeofday 96 169
  getrlimit 97 163 | getrusage 98 165 | sysinfo 99 179 | times 100 153 | getuid 102 174 | getgid 104 176
  setuid 105 146 | setgid 106 144 | geteuid 107 175 | getegid 108 177 | setpgid 109 154 | getppid 110 173
  getpgrp 111 - | setsid 112 157 | setreuid 113 145 | setregid 114 143 | getgroups 115 158 | setgroups 116 159
  setresuid 117 147 | getresuid 118 148 | setresgid 119 149 | getresgid 120 150 | getpgid 121 155 | setfsuid 122 151
  setfsgid 123 152 | getsid 124 156 | capget 125 90 | capset 126 91 | rt_sigpending 127 136 | rt_sigtimedwait 128 137
  rt_sigqueueinfo 129 138 | rt_sigsuspend 130 133 | sigaltstack 131 132 | utime 132 - | mknod 133 - | statfs 137 43
  fstatfs 138 44 | getpriority 140 141 | setpriority 141 140 | sched_setparam 142 118 | sched_getparam 143 121
  sched_setscheduler 144 119 | sched_getscheduler 145 120 | sched_get_priority_max 146 125
  sched_get_priority_min 147 126 | sched_rr_get_interval 148 127 | mlock 149 228 | munlock 150 229 | mlockall 151 230
  munlockall 152 231 | arch_prctl 158 - | adjtimex 159 171 | setrlimit 160 164 | chroot 161 51
  sync 162 81 | gettid 186 178 | readahead 187 213 | setxattr 188 5 | lsetxattr 189 6 | fsetxattr 190 7
  getxattr 191 8 | lgetxattr 192 9 | fgetxattr 193 10 | listxattr 194 11 | llistxattr 195 12 | flistxattr 196 13
  removexattr 197 14 | lremovexattr 198 15 | fremovexattr 199 16 | tkill 200 130 | time 201 - | futex 202 98
  sched_setaffinity 203 122 | sched_getaffinity 204 123 | io_setup 206 0 | io_destroy 207 1 | io_getevents 208 4
  io_submit 209 2 | io_cancel 210 3 | epoll_create 213 - | remap_file_pages 216 234 | getdents64 217 61
  set_tid_address 218 96 | restart_syscall 219 128 | semtimedop 220 192 | fadvise64 221 223 | timer_create 222 107
  timer_settime 223 110 | timer_gettime 224 108 | timer_getoverrun 225 109 | timer_delete 226 111
  clock_gettime 228 113 | clock_getres 229 114 | clock_nanosleep 230 115 | exit_group 231 94 | epoll_wait 232 -
  epoll_ctl 233 21 | tgkill 234 131 | utimes 235 - | mq_open 240 180 | mq_unlink 241 181 | mq_timedsend 242 182
  mq_timedreceive 243 183 | mq_notify 244 184 | mq_getsetattr 245 185 | waitid 247 95 | ioprio_set 251 30
  ioprio_get 252 31 | inotify_init 253 - | inotify_add_watch 254 27 | inotify_rm_watch 255 28 | openat 257 56
  mkdirat 258 34 | mknodat 259 33 | fchownat 260 54 | futimesat 261 - | newfstatat 262 79 | unlinkat 263 35
  renameat 264 38 | linkat 265 37 | symlinkat 266 36 | readlinkat 267 78 | fchmodat 268 53 | faccessat 269 48
  pselect6 270 72 | ppoll 271 73 | set_robust_list 273 99 | get_robust_list 274 100 | splice 275 76 | tee 276 77
  sync_file_range 277 84 | vmsplice 278 75 | utimensat 280 88 | epoll_pwait 281 22 | signalfd 282 -
  timerfd_create 283 85 | eventfd 284 - | fallocate 285 47 | timerfd_settime 286 86 | timerfd_gettime 287 87
  accept4 288 242 | signalfd4 289 74 | eventfd2 290 19 | epoll_create1 291 20 | dup3 292 24 | pipe2 293 59
  inotify_init1 294 26 | preadv 295 69 | pwritev 296 70 | rt_tgsigqueueinfo 297 240 | recvmmsg 299 243
  fanotify_mark 301 263 | prlimit64 302 261 | clock_adjtime 305 266 | syncfs 306 267 | sendmmsg 307 269
  getcpu 309 168 | sched_setattr 314 274 | sched_getattr 315 275 | renameat2 316 276 | seccomp 317 277
  getrandom 318 278 | memfd_create 319 279 | execveat 322 281 | membarrier 324 283 | mlock2 325 284
  copy_file_range 326 285 | preadv2 327 286 | pwritev2 328 287 | pkey_mprotect 329 288 | pkey_alloc 330 289
  pkey_free 331 290 | statx 332 291 | io_pgetevents 333 292 | rseq 334 293 | pidfd_send_signal 424 424
  pidfd_open 434 434 | openat2 437 437 | faccessat2 439 439 | epoll_pwait2 441 441
  landlock_create_ruleset 444 444 | landlock_add_rule 445 445 | landlock_restrict_self 446 446 | futex_waitv 449 449
  fchmodat2 452 452 | map_shadow_stack 453 453 | futex_wake 454 454 | futex_wait 455 455 | futex_requeue 456 456
  mseal 462 462 | setxattrat 463 463 | getxattrat 464 464 | listxattrat 465 465 | removexattrat 466 466
`);

/**
 * Calls that no agent needs and that expose attack surface of the kernel, access other processes, or affect more than
 * the sandbox. They fail with EPERM instead of ENOSYS, because programs know that they exist.
 */
export const REFUSED = read(`
  mount 165 40 | umount2 166 39 | pivot_root 155 41 | open_tree 428 428 | move_mount 429 429 | fsopen 430 430
  fsconfig 431 431 | fsmount 432 432 | fspick 433 433 | mount_setattr 442 442 | open_tree_attr 467 467 | setns 308 268
  add_key 248 217 | request_key 249 218 | keyctl 250 219 | bpf 321 280 | perf_event_open 298 241 | userfaultfd 323 282
  name_to_handle_at 303 264 | open_by_handle_at 304 265 | fanotify_init 300 262 | kexec_load 246 104
  kexec_file_load 320 294 | init_module 175 105 | finit_module 313 273 | delete_module 176 106 | reboot 169 142
  swapon 167 224 | swapoff 168 225 | acct 163 89 | quotactl 179 60 | quotactl_fd 443 443 | lookup_dcookie 212 18
  iopl 172 - | ioperm 173 - | syslog 103 116 | settimeofday 164 170 | clock_settime 227 112 | vhangup 153 58
  ptrace 101 117 | process_vm_readv 310 270 | process_vm_writev 311 271 | pidfd_getfd 438 438 | kcmp 312 272
  process_madvise 440 440 | process_mrelease 448 448 | move_pages 279 239 | migrate_pages 256 238 | mbind 237 235
  set_mempolicy 238 237 | get_mempolicy 239 236 | set_mempolicy_home_node 450 450 | modify_ldt 154 -
  sethostname 170 161 | setdomainname 171 162
`);

/** Fail with ENOSYS, so that libraries fall back to older calls. */
export const ABSENT = read(`
  clone3 435 435 | io_uring_setup 425 425 | io_uring_enter 426 426 | io_uring_register 427 427 | memfd_secret 447 447
  statmount 457 457 | listmount 458 458 | cachestat 451 451 | lsm_get_self_attr 459 459 | lsm_set_self_attr 460 460
  lsm_list_modules 461 461 | file_getattr 468 468 | file_setattr 469 469
`);

/** Calls whose rule depends on the arguments. */
export const TESTED = read(`
  clone 56 220 | unshare 272 97 | ioctl 16 29 | socket 41 198 | socketpair 53 199 | personality 135 92
  close_range 436 436 | prctl 157 167
`);

/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; NEWTIME is 0x80 and a signal number in clone(). */
export const NAMESPACE_FLAGS = 0x7e020000;
export const NEW_TIME_NAMESPACE = 0x80;
/**
 * Without hard limits, the supervisor scans the descriptors of each process, so no thread may have a separate
 * descriptor table. A forked process may, because it is a process of its own.
 */
const CLONE_FILES = 0x400;
const CLONE_THREAD = 0x10000;
const CLOSE_RANGE_UNSHARE = 2;
/**
 * A process must not hide from the supervisor. The call reports success without effect, because programs use it to
 * protect themselves.
 */
const PR_SET_DUMPABLE = 4;
/** TIOCSTI and TIOCLINUX insert input into another process's terminal. */
export const TERMINAL_INJECTIONS: readonly number[] = [0x5412, 0x541c];
/** The allowed socket families: Unix, IPv4, IPv6, and netlink, which is limited to routes. */
export const SOCKET_FAMILIES = [1, 2, 10, 16] as const;
/**
 * The allowed personalities: PER_LINUX and PER_LINUX32, with or without UNAME26, and the query of the current one.
 * Others disable protections such as address randomisation.
 */
export const PERSONALITIES: readonly number[] = [0, 8, 0x20000, 0x20008, 0xffffffff];

/**
 * `agent`: the filter of every runtime. `setup`: the same, except that changes of ownership and identity report success
 * without effect. Both drivers use these filters only.
 */
export type SeccompProfile = 'agent' | 'setup';

/**
 * One kernel user owns everything in a sandbox, so a package manager's chown and setuid would fail and abort the
 * installation.
 */
const PRETENDED: readonly string[] = [
  ['chown', 'fchown', 'lchown', 'fchownat', 'capset', 'setuid', 'setgid', 'setreuid', 'setregid'],
  ['setgroups', 'setresuid', 'setresgid', 'setfsuid', 'setfsgid'],
].flat();

const [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK] = SOCKET_FAMILIES;
const NETLINK_ROUTE = 0;

/** Rules that depend on the arguments of a call. */
const RULES: Readonly<Record<string, Omit<SyscallRule, 'number'>>> = {
  clone: {
    tests: [
      { when: [{ index: 0, anyBit: NAMESPACE_FLAGS }], action: { errno: EPERM } },
      { when: [{ index: 0, anyBit: CLONE_FILES }], action: 'allow' },
      { when: [{ index: 0, anyBit: CLONE_THREAD }], action: { errno: EPERM } },
    ],
    otherwise: 'allow',
  },
  unshare: {
    tests: [
      {
        when: [{ index: 0, anyBit: NAMESPACE_FLAGS | NEW_TIME_NAMESPACE | CLONE_FILES }],
        action: { errno: EPERM },
      },
    ],
    otherwise: 'allow',
  },
  ioctl: {
    tests: [{ when: [{ index: 1, equals: TERMINAL_INJECTIONS }], action: { errno: EPERM } }],
    otherwise: 'allow',
  },
  socket: {
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
  },
  socketpair: {
    tests: [{ when: [{ index: 0, equals: [AF_UNIX] }], action: 'allow' }],
    otherwise: { errno: EAFNOSUPPORT },
  },
  close_range: {
    tests: [{ when: [{ index: 2, anyBit: CLOSE_RANGE_UNSHARE }], action: { errno: EPERM } }],
    otherwise: 'allow',
  },
  prctl: {
    tests: [
      {
        when: [
          { index: 0, equals: [PR_SET_DUMPABLE] },
          { index: 1, equals: [0] },
        ],
        action: { errno: 0 },
      },
    ],
    otherwise: 'allow',
  },
  personality: {
    tests: [{ when: [{ index: 0, equals: PERSONALITIES }], action: 'allow' }],
    otherwise: { errno: EPERM },
  },
};

/** The system call numbers of a table for an architecture. */
function numbersOn(table: Readonly<Record<string, Numbers>>, column: 0 | 1): number[] {
  return Object.values(table).flatMap((numbers) => numbers[column] ?? []);
}

function rulesFor(column: 0 | 1, profile: SeccompProfile): SyscallRule[] {
  const answerAll = (table: Readonly<Record<string, Numbers>>, otherwise: Action): SyscallRule[] =>
    numbersOn(table, column).map((number) => ({ number, otherwise }));
  const pretended = Object.fromEntries(
    Object.entries(ALLOWED).filter(([name]) => PRETENDED.includes(name)),
  );
  const tested = Object.entries(TESTED).flatMap(([name, numbers]): SyscallRule[] => {
    const number = numbers[column];
    const rule = RULES[name];
    if (rule === undefined) throw new Error(`no seccomp rule for ${name}`);
    return number === null ? [] : [{ number, ...rule }];
  });
  return [
    ...tested,
    ...(profile === 'setup' ? answerAll(pretended, { errno: 0 }) : []),
    ...answerAll(REFUSED, { errno: EPERM }),
    ...answerAll(ABSENT, { errno: ENOSYS }),
  ];
}

/**
 * The filter of a profile for a processor architecture, by Node's name.
 * @throws Error for an architecture without a table, because sandboxes must not run without a filter.
 */
export function seccompFilter(profile: SeccompProfile, architecture: string): Buffer {
  if (architecture !== 'x64' && architecture !== 'arm64') {
    throw new Error(`no seccomp profile for the processor architecture ${architecture}`);
  }
  const known: Architecture = architecture;
  const column = known === 'x64' ? 0 : 1;
  return assembleFilter(known, rulesFor(column, profile), numbersOn(ALLOWED, column));
}
