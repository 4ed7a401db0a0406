import { type Attack, inSandbox } from '../attack.js';
import { perl } from './perl.js';

export const PROCESS_ATTACKS: readonly Attack[] = [
  inSandbox({
    name: 'fork-bomb',
    what: 'a fork bomb for eight seconds',
    prompts: [`bomb() { bomb | bomb & }; (bomb) 2>&1 | tail -n 1 & sleep {{8}}; echo over`],
    expected:
      /^(exit 0 .*over|error: .*process|exit \d+ .*(Resource temporarily unavailable|fork))/,
  }),
  inSandbox({
    name: 'many-processes',
    what: 'as many processes as it can get',
    prompts: [
      perl(`my $count = 0; for (1..1000) { my $pid = fork; if (!defined $pid) { print "refused after $count: $!\\n"; last }
if (!$pid) { sleep 30; exit } $count++ } print "BREACH $count processes\\n" if $count > 200; sleep 1; POSIX::_exit(0)`),
    ],
    expected: /^(exit 0 .*refused after \d+: Resource temporarily unavailable|error: .*process)/,
  }),
  inSandbox({
    name: 'many-threads',
    what: 'a process that starts another and ends, as fast as it can, for eight seconds',
    prompts: [
      perl(`my $end = time + {{8}}; while (time < $end) { my $pid = fork // next; if ($pid) { POSIX::_exit(0) if $$ != $main::first; waitpid($pid, 0) } }
BEGIN { $main::first = $$ } print "over\\n" if $$ == $main::first;`),
    ],
    expected: /^(exit 0|error: )/,
  }),
  inSandbox({
    name: 'cpu-hogs',
    what: '64 busy loops at every priority that it can get',
    prompts: [
      // One process each: 64 of them stay below the limit of processes.
      `for i in {1..64}; do nice -n -20 sh -c 'while :; do :; done' 2>/dev/null & done; sleep {{14}}; kill $(jobs -p); echo over`,
    ],
    expected: /^(exit 0|error: .*(time|process))/,
  }),
  inSandbox({
    name: 'real-time',
    what: 'asks for real-time priority, and for the first turn at the disk',
    prompts: [
      `chrt -f 50 true 2>&1 && echo BREACH real time; ionice -c 1 -n 0 true 2>&1 && echo BREACH disk; echo refused`,
    ],
    expected: /^exit 0 .*refused/,
  }),
  inSandbox({
    name: 'daemon',
    what: "a daemon with another launch's mark that is to outlive its turn",
    prompts: [
      `SANDBOX_LAUNCH=bogus setsid sh -c 'exec </dev/null >/dev/null 2>&1; while :; do date +%s%N > ~/beat; sleep 0.1; done' &
for i in 1 2 3; do env -i SANDBOX_LAUNCH=$i PATH=$PATH HOME=$HOME setsid sh -c '(while :; do date +%s%N > ~/beat; sleep 0.1; done) &' >/dev/null 2>&1 </dev/null; done
for i in {1..80}; do [ -s ~/beat ] && break; sleep 0.1; done; cat ~/beat`,
      `sleep 0.5; a=$(cat ~/beat); sleep 1; b=$(cat ~/beat); [ "$a" = "$b" ] && echo the daemon is gone || echo BREACH it beats`,
    ],
    expected: /^exit 0 .*the daemon is gone/,
  }),
  inSandbox({
    name: 'daemon-of-setup',
    what: 'a daemon that the setup script leaves behind, with 60 other processes',
    software: true,
    seconds: 150,
    environment: {
      setup_script: `(setsid sh -c 'exec </dev/null >/dev/null 2>&1; while :; do date +%s%N > /workspace/beat; sleep 0.1; done' &)
for i in $(seq 60); do (sleep 60 </dev/null >/dev/null 2>&1 &); done; for i in $(seq 50); do [ -s /workspace/beat ] && break; sleep 0.1; done; chmod 666 /workspace/beat; cat /workspace/beat`,
    },
    prompts: [
      `sleep 0.5; a=$(cat beat); sleep 1; b=$(cat beat); [ "$a" = "$b" ] && echo the daemon is gone || echo BREACH it beats`,
    ],
    expected: /^(exit 0 .*the daemon is gone|error: (?!Turn timed out))/,
  }),
  inSandbox({
    name: 'signals',
    what: 'SIGKILL and SIGSTOP to everything that it sees',
    prompts: [
      `kill -STOP 1; kill -9 1; for p in /proc/[0-9]*; do p=\${p#/proc/}; [ "$p" = $$ ] || kill -STOP "$p" 2>/dev/null; done; sleep 1; kill -9 -1; echo over`,
    ],
    expected: /^(exit \d+|error: )/,
  }),
  inSandbox({
    name: 'closes-everything',
    what: 'closes its output and stays, and leaves children who hold it open',
    prompts: [`(sleep 600) & exec 1>&- 2>&-; (setsid sleep 600) & exit 0`],
    expected: /^(exit 0|error: .*time)/,
  }),
];
