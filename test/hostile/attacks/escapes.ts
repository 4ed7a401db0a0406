import { type Attack, inSandbox } from '../attack.js';
import { perl } from './perl.js';

/** Programs that something with more rights may look for where the agent can put its own. */
const LOOKED_FOR =
  'setpriv sh bash env nice prlimit setsid mkdir cat rm chown chmod tar find node bwrap mkfifo stat kill ps sudo true id git npm apt-get';

/** Each leaves a note of who ran it, and then does what it is called for. */
const PLANT = `mkdir -p ~/.local/bin && cd ~/.local/bin && for name in ${LOOKED_FOR}; do
real=$(PATH=/usr/sbin:/usr/bin:/sbin:/bin command -v $name) || continue
printf '#!/bin/bash\\necho "%s $EUID $(/usr/bin/grep ^CapEff /proc/self/status)" >> ~/who 2>/dev/null\\nexec %s "$@"\\n' $name $real > $name; chmod 755 $name; done; rm -f ~/who; echo planted`;

/** Notes by root, or by anybody with a capability. */
const WHO = `PATH=/usr/bin:/bin; sleep 0.5; if grep -E ' 0 |CapEff:.*[1-9a-f]' ~/who 2>/dev/null; then echo BREACH ran with more rights; else echo nobody with more rights; fi`;

export const ESCAPE_ATTACKS: readonly Attack[] = [
  inSandbox({
    name: 'replaced-programs',
    what: 'programs of its own in the place of `setpriv`, `sh`, `node` and others',
    prompts: [PLANT, WHO],
    expected: /^exit 0 .*nobody with more rights/,
  }),
  inSandbox({
    name: 'loader-variables',
    what: 'variables of the loader, which are to reach whatever starts it',
    environment: {
      env_vars: {
        LD_DEBUG: 'files',
        LD_DEBUG_OUTPUT: '/tmp/loader',
        LD_PRELOAD: '/workspace/evil.so',
      },
    },
    prompts: [
      `unset LD_PRELOAD LD_DEBUG; n=$(find /tmp -name 'loader*' ! -uid $(id -u) | wc -l); [ "$n" = 0 ] && echo only its own || echo BREACH $n of others`,
    ],
    // To refuse the names is as good.
    expected: /^exit 0 .*only its own|422/,
  }),
  inSandbox({
    name: 'interpreter-variables',
    what: 'variables that make shells and Node run a file of its own',
    environment: {
      env_vars: {
        BASH_ENV: '/workspace/run-me',
        ENV: '/workspace/run-me',
        NODE_OPTIONS: '--require /workspace/run-me.js',
        PERL5OPT: '-Mstrict',
      },
    },
    prompts: [
      `echo 'echo "$EUID" >> /workspace/ran' > run-me; echo 'require("fs").appendFileSync("/workspace/ran", process.geteuid() + "\\n")' > run-me.js; echo planted`,
      `unset BASH_ENV ENV NODE_OPTIONS; sleep 0.3; if grep -qx 0 ran; then echo BREACH ran as root; else echo never as root; fi`,
    ],
    expected: /^exit 0 .*never as root|422|^exit \d+ /,
  }),
  inSandbox({
    name: 'rlimits',
    what: 'raises its limits, and looks which there are',
    prompts: [
      `ulimit -u 100000 2>&1 && echo BREACH more processes; ulimit -c unlimited 2>&1 && echo BREACH core files; ulimit -n 1048577 2>&1 && echo BREACH more files; echo refused`,
    ],
    expected: /^exit 0 .*refused/,
  }),
  inSandbox({
    name: 'system-calls',
    what: 'system calls that nobody needs: `ptrace`, `mount`, `bpf`, `io_uring` and 25 more',
    prompts: [
      perl(`my $zero = "\\0" x 256; my @reached;
for my $name (qw(ptrace mount umount2 bpf unshare setns keyctl add_key userfaultfd perf_event_open process_vm_readv process_vm_writev
  init_module kexec_load open_by_handle_at pivot_root swapon reboot syslog chroot acct fanotify_init io_uring_setup io_uring_register
  pidfd_getfd memfd_secret fsopen move_mount open_tree mount_setattr statmount listmount)) {
  my @arguments = $name eq 'ptrace' ? (0, 0, 0, 0) : $name eq 'unshare' ? (0x10000000) : $name =~ /^process_vm/ ? ($$, 0, 0, 0, 0, 0)
    : $name eq 'chroot' ? ("/\\0") : $name eq 'memfd_secret' ? (0) : $name eq 'io_uring_setup' ? (8, $zero) : (0, 0, 0, 0, 0, 0);
  $! = 0; my $got = syscall($nr{$name}, @arguments); my $why = $!{EPERM} || $!{ENOSYS} || $!{EACCES};
  push @reached, "$name (" . ($got == -1 ? $! : "gave $got") . ')' unless $got == -1 && $why }
print @reached ? "BREACH reached: @reached\\n" : "all refused\\n";`),
    ],
    expected: /^exit 0 .*all refused/,
  }),
  inSandbox({
    name: 'personality',
    what: 'turns off the random layout of memory, and asks for another architecture',
    prompts: [
      perl(
        `print syscall($nr{personality}, 0x0040000) == -1 ? "refused: $!\\n" : "BREACH no random layout\\n";`,
      ),
    ],
    expected: /^exit 0 .*refused/,
  }),
  inSandbox({
    name: 'kernel-files',
    what: "writes to the kernel's files and to control groups, and reads others' memory",
    prompts: [
      `try() { if "$@" 2>/dev/null; then echo "BREACH $*"; fi; }
try sh -c 'echo 1 > /proc/sys/kernel/sysrq'; try sh -c 'echo core > /proc/sys/kernel/core_pattern'
try sh -c 'echo b > /proc/sysrq-trigger'; try sh -c 'echo -1000 > /proc/self/oom_score_adj'
for f in $(find /sys/fs/cgroup -name cgroup.procs 2>/dev/null | head -20); do try sh -c "echo 0 > $f"; done
try head -c 1 /proc/1/mem; try head -c 1 /proc/kcore; try head -c 1 /dev/mem; try mknod ~/disk b 8 0; try mount -t tmpfs none /mnt
try unshare -U true; try cat /etc/shadow; try sh -c 'echo x > /etc/passwd'; try su -c true; echo all refused`,
    ],
    expected: /^exit 0 (\| )?(?!.*BREACH).*all refused/,
  }),
  inSandbox({
    name: 'spool-and-supervisor',
    what: "looks for what runs beside it: the supervisor's files and processes",
    prompts: [
      `for d in /spool /run/sandbox /var/spool/sandbox /sandbox /launches; do [ -w "$d" ] && echo "BREACH may write $d"; done
for p in /proc/[0-9]*; do [ "$(stat -c %u $p 2>/dev/null)" = "$(id -u)" ] && continue; cat $p/environ >/dev/null 2>&1 && echo "BREACH reads $p"; ls $p/fd/ >/dev/null 2>&1 && echo "BREACH sees $p"; ls $p/root/ >/dev/null 2>&1 && echo "BREACH root of $p"; done; echo nothing found`,
    ],
    expected: /^exit 0 .*nothing found/,
  }),
  inSandbox({
    name: 'symlinks',
    what: 'links in the place of every file and folder that the service writes',
    environment: { env_vars: { PLAIN: 'value-of-a-variable' } },
    prompts: [
      `cd ~; rm -rf .session .gitconfig .git-credentials .mcp.json .agents .claude; for f in .session .agents .claude .local; do ln -s / $f 2>/dev/null; done
for f in .gitconfig .git-credentials .mcp.json; do ln -s /etc/passwd $f; done; rm -rf /workspace/* ; echo planted`,
      'echo second turn',
    ],
    expected: /^(exit 0 .*second turn|error: )/,
  }),
  inSandbox({
    name: 'fifos',
    what: 'pipes and endless links in the place of files that the service reads or writes',
    environment: { env_vars: { PLAIN: 'value-of-a-variable' } },
    prompts: [
      `cd ~; rm -rf .session .mcp.json .gitconfig; mkdir .session; for f in .session/env .session/runtime-env .mcp.json .gitconfig .bashrc .profile; do mkfifo $f; done; ln -s loop .agents; echo planted`,
      'echo second turn',
    ],
    expected: /^(exit 0 .*second turn|error: )/,
  }),
  inSandbox({
    name: 'locked-folders',
    what: 'folders without any right, which somebody has to remove',
    prompts: [
      `mkdir -p ~/a/b/c && touch ~/a/b/c/file && chmod 000 ~/a/b/c ~/a/b ~/a; chmod 000 ~ . ; echo locked`,
    ],
    expected: /^(exit 0 .*locked|error: )/,
  }),
];
