import { type Attack, inSandbox } from '../attack.js';
import { perl } from './perl.js';

/** Four times what a sandbox may have. */
const SIZE = 1_073_741_824;
const MEMORY =
  /^(error: .*memory|exit (137|[1-9]\d*) .*(memory|Killed|No space|mmap|Out of)|exit (137|9)\b)/i;
const HOLD = `print "BREACH holds ${SIZE} bytes\\n"; sleep 3;`;

function memory(name: string, what: string, program: string): Attack {
  return inSandbox({ name, what, expected: MEMORY, prompts: [program] });
}

export const MEMORY_ATTACKS: readonly Attack[] = [
  memory(
    'memory-private',
    'one process takes 1 GiB of memory',
    perl(`my @parts; push @parts, 'x' x 1048576 for 1..1024; ${HOLD}`),
  ),
  memory(
    'memory-forked',
    '20 processes take 50 MiB each',
    perl(`for (1..20) { my $pid = fork // next; next if $pid; my $x = ''; $x .= 'x' x 1048576 for 1..50; sleep 14; exit }
sleep 12; my $alive = 0; while ((my $pid = waitpid(-1, POSIX::WNOHANG())) != -1) { $pid ? 0 : $alive++; last if $alive > 0 }
if ($alive) { ${HOLD} } else { die "memory: all were ended\\n" }`),
  ),
  memory(
    'memory-shared',
    '1 GiB of shared anonymous memory',
    perl(`fill(mapped(${SIZE}), ${SIZE}); ${HOLD}`),
  ),
  memory(
    'memfd-unmapped',
    '1 GiB in memory files that nobody has mapped',
    perl(`my $name = "m\\0"; my $fd = syscall($nr{memfd_create}, $name, 0); die "memfd: $!\\n" if $fd < 0;
open(my $file, '+<&=', $fd) or die $!; my $block = 'x' x 1048576;
for (1..1024) { (syswrite($file, $block) // 0) == 1048576 or die "memfd: $!\\n" } ${HOLD}`),
  ),
  memory(
    'memfd-mapped',
    '1 GiB in memory files, mapped and unmapped again',
    perl(`my $name = "m\\0"; for (1..64) { my $fd = syscall($nr{memfd_create}, $name, 0); die "memfd: $!\\n" if $fd < 0;
open(my $file, '+<&=', $fd) or die $!; truncate($file, 16777216) or die "memfd: $!\\n";
my $at = mapped(16777216, $fd); fill($at, 16777216); syscall($nr{munmap}, $at, 16777216); push @main::kept, $file } ${HOLD}`),
  ),
  memory(
    'memory-system-v',
    '1 GiB in System V segments that no process is attached to',
    perl(`for (1..64) { my $id = shmget(0, 16777216, 01600) // die "memory: shmget: $!\\n";
for (my $at = 0; $at < 16777216; $at += 1048576) { shmwrite($id, 'x' x 1048576, $at, 1048576) or die "memory: shmwrite: $!\\n" } } ${HOLD}`),
  ),
  memory(
    'dev-shm',
    '1 GiB in /dev/shm',
    `dd if=/dev/zero of=/dev/shm/full bs=1M count=1024 2>&1 && echo BREACH filled`,
  ),
  memory(
    'run-tmpfs',
    '1 GiB in every other file system that lies in memory',
    `for d in $(awk '$3 == "tmpfs" {print $2}' /proc/mounts); do dd if=/dev/zero of="$d/full" bs=1M count=1024 2>&1 && echo BREACH filled "$d"; done; exit 9`,
  ),
  inSandbox({
    name: 'page-cache',
    what: 'writes and reads a file of 90 MiB over and over',
    prompts: [
      `end=$((SECONDS + {{12}})); while ((SECONDS < end)); do dd if=/dev/zero of=~/cached bs=1M count=90 2>/dev/null; cat ~/cached >/dev/null; done; rm ~/cached; echo over`,
    ],
    expected: /^(exit 0|error: .*(time|disk))/,
  }),
  inSandbox({
    name: 'memory-of-setup',
    what: '1 GiB of memory in the setup script',
    software: true,
    seconds: 150,
    environment: {
      setup_script: perl(`my @parts; push @parts, 'x' x 1048576 for 1..1024; sleep 2;`),
    },
    prompts: ['echo BREACH set up'],
    expected: /^error: (?!Turn timed out)/,
  }),
  inSandbox({
    name: 'kernel-names',
    what: 'asks for files that are not there until the kernel remembers 400,000 names',
    prompts: [perl(`for (1..400000) { -e "none-$_" } print "over\\n";`)],
    expected: /^(exit 0 .*over|error: .*memory)/,
  }),
  inSandbox({
    name: 'pipe-buffers',
    what: 'fills the buffers of as many pipes and sockets as it may have',
    prompts: [
      perl(`my @kept; my $block = 'x' x 1048576;
while (1) { pipe(my $r, my $w) or last; fcntl($w, 1031, 1048576); fcntl($w, F_SETFL, O_NONBLOCK); syswrite($w, $block); push @kept, $r, $w }
print scalar(@kept), " descriptors: $!\\n"; sleep 2;`),
    ],
    expected: /^(exit \d+ .*(descriptors: Too many open files|memory)|error: .*memory)/,
  }),
  inSandbox({
    name: 'locked-memory',
    what: 'locks memory so that it cannot be taken back',
    prompts: [
      perl(
        `my $at = mapped(134217728); print syscall($nr{mlock}, $at, 134217728) == 0 ? "BREACH locked\\n" : "refused: $!\\n";`,
      ),
    ],
    expected: /^exit \d+ .*refused|^error: .*memory/,
  }),
];
