import { type Attack, inSandbox } from '../attack.js';
import { perl } from './perl.js';

/** What says that the disk is full; that of a turn, or the system's. */
const FULL =
  /^(error: .*(disk|memory)|exit [1-9]\d* .*(No space left|quota|disk|Cannot allocate))/i;

function fill(name: string, folder: string, what: string): Attack {
  return inSandbox({
    name,
    what,
    prompts: [
      `mkdir -p ${folder}; dd if=/dev/zero of=${folder}/full bs=1M count=1024 2>&1 && sleep 3 && echo BREACH filled; exit 9`,
    ],
    expected: FULL,
  });
}

export const DISK_ATTACKS: readonly Attack[] = [
  fill('disk-workspace', '.', '1 GiB in the workspace'),
  fill('disk-home', '~/.cache', '1 GiB in a hidden folder of its home'),
  fill('disk-tmp', '/tmp', '1 GiB in /tmp'),
  fill('disk-var-tmp', '/var/tmp', '1 GiB in /var/tmp'),
  inSandbox({
    name: 'disk-system',
    what: '1 GiB into every folder of its system that it may write',
    software: true,
    seconds: 150,
    environment: {
      setup_script:
        'mkdir -p /usr/share/open /opt/open && chmod 777 /usr/share/open /opt/open /usr /var /opt',
    },
    prompts: [
      `for d in /usr/share/open /opt/open /usr /var /opt /var/cache /var/lib /var/log; do dd if=/dev/zero of=$d/full bs=1M count=1024 2>&1 && sleep 3 && echo BREACH filled $d; done; echo; exit 9`,
    ],
    expected: /^(error: .*(disk|memory)|exit 9)/i,
  }),
  inSandbox({
    name: 'disk-long-paths',
    what: '1 GiB below paths of more than 4,096 bytes',
    prompts: [
      perl(`my $name = 'd' x 240; for (1..30) { mkdir $name or die "mkdir: $!\\n"; chdir $name or die "chdir: $!\\n" }
my $block = 'x' x 1048576; open(my $file, '>', 'full') or die "open: $!\\n";
for (1..1024) { (syswrite($file, $block) // 0) == 1048576 or die "$!\\n" } close $file; sleep 4; print "BREACH filled\\n";`),
    ],
    expected: FULL,
  }),
  inSandbox({
    name: 'disk-stdin',
    what: '1 GiB into the file that its prompt is read from',
    prompts: [
      `mkdir -p ~/.local/bin; cat >~/.local/bin/bash <<'END'
#!/bin/sh
dd if=/dev/zero of=/proc/$$/fd/0 bs=1M count=1024 conv=notrunc 2>&1 && sleep 3 && echo BREACH filled; exit 9
END
chmod +x ~/.local/bin/bash`,
      'its own bash reads this',
    ],
    expected: /^(error: .*(disk|memory)|exit 9 .*not permitted)/i,
  }),
  inSandbox({
    name: 'disk-unlinked',
    what: '1 GiB in files that have no name any more, held open',
    prompts: [
      perl(`my @kept; my $block = 'x' x 1048576; for my $i (1..64) { open(my $file, '>', "f$i") or die "open: $!\\n"; unlink "f$i";
for (1..16) { (syswrite($file, $block) // 0) == 1048576 or die "$!\\n" } push @kept, $file } sleep 4; print "BREACH filled\\n";`),
    ],
    expected: FULL,
  }),
  inSandbox({
    name: 'disk-mapped',
    what: '1 GiB in files that are only mapped: no name, no descriptor',
    prompts: [
      perl(`my $block = 'x' x 1048576; for my $i (1..64) { open(my $file, '+>', "f$i") or die "open: $!\\n"; unlink "f$i";
for (1..16) { (syswrite($file, $block) // 0) == 1048576 or die "$!\\n" } mapped(16777216, fileno $file); close $file } sleep 4; print "BREACH filled\\n";`),
    ],
    expected: FULL,
  }),
  inSandbox({
    name: 'disk-in-flight',
    what: '1 GiB in files that are only on their way through sockets',
    prompts: [
      perl(`my @kept; my $block = 'x' x 1048576; for my $i (1..64) { open(my $file, '+>', "f$i") or die "open: $!\\n"; unlink "f$i";
for (1..16) { (syswrite($file, $block) // 0) == 1048576 or die "$!\\n" }
socketpair(my $a, my $b, AF_UNIX, SOCK_DGRAM, PF_UNSPEC) or die "socketpair: $!\\n"; push @kept, $a, $b;
my $byte = 'x'; my $vector = pack('P Q', $byte, 1); my $control = pack('Q l l l x4', 20, 1, 1, fileno $file);
my $message = pack('Q L x4 P Q P Q l x4', 0, 0, $vector, 1, $control, length $control, 0);
syscall($nr{sendmsg}, fileno $a, $message, 0) == 1 or die "sendmsg: $!\\n"; close $file } sleep 4; print "BREACH filled\\n";`),
    ],
    expected: FULL,
  }),
  inSandbox({
    name: 'disk-allocated',
    what: 'reserves 1 GiB without writing it, after a sparse file of 1 TiB',
    prompts: [
      `truncate -s 1T ~/sparse; fallocate -l 1G ~/reserved 2>&1 && sleep 3 && echo BREACH reserved; exit 9`,
    ],
    expected: FULL,
  }),
  inSandbox({
    name: 'disk-empty-files',
    what: 'as many empty files as it can make',
    prompts: [
      perl(`my $end = time + {{12}}; my $count = 0; FILES: while (time < $end) { my $folder = sprintf '%06d', $count / 1000; mkdir $folder;
for (1..1000) { open(my $file, '>', "$folder/$count") or do { print "refused after $count: $!\\n"; last FILES }; $count++ }
if ($count >= 400000) { print "BREACH $count files\\n"; last } } print "$count files\\n"; exit 9`),
    ],
    expected: /^(error: .*disk|exit 9 .*(No space left|quota|\d files))/i,
  }),
  inSandbox({
    name: 'disk-deep-tree',
    what: 'a tree 20,000 folders deep, which somebody has to remove',
    prompts: [
      perl(
        `for (1..20000) { mkdir 'd' or die "after $_: $!\\n"; chdir 'd' or die "after $_: $!\\n" } print "made\\n";`,
      ),
    ],
    expected: /^(exit 0 .*made|error: .*(disk|time)|exit \d+ .*(No space left|quota|after))/i,
  }),
  inSandbox({
    name: 'disk-churn',
    what: 'writes, synchronises and removes 64 MiB over and over',
    prompts: [
      `end=$((SECONDS + {{12}})); while ((SECONDS < end)); do dd if=/dev/zero of=~/churn bs=1M count=64 conv=fsync 2>/dev/null; rm ~/churn; done; echo over`,
    ],
    expected: /^(exit 0|error: .*(disk|time))/,
  }),
];
