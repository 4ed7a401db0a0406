/** A tree that an agent may leave behind to fool who reads it. */
export interface HostileTree {
  name: string;
  /** Makes the tree in the current folder. `$OUTSIDE` is a folder with a secret that may not be read or changed. */
  script: string;
  /** Runs in the current folder while the tree is accessed. */
  meanwhile?: string;
  /** Paths to access, besides those that are listed. */
  paths?: string[];
  /** How often each access is tried. */
  rounds?: number;
}

const SWAP = (first: string, second: string) =>
  `while :; do mv -T ${first} swapped && mv -T ${second} ${first} && mv -T swapped ${second}; done`;

const LINKS: HostileTree[] = [
  { name: 'a link to a file outside', script: 'ln -s "$OUTSIDE/secret" a' },
  { name: 'a link to a folder outside', script: 'ln -s "$OUTSIDE" a', paths: ['a/secret'] },
  {
    name: 'a chain of links that ends outside',
    script: 'ln -s b a; ln -s c b; ln -s "$OUTSIDE" c',
    paths: ['a/secret', 'b/secret'],
  },
  {
    name: 'a link that climbs',
    script:
      'ln -s ../../../../../../../../..$OUTSIDE/secret a; mkdir d; ln -s ../../../outside d/b',
    paths: ['d/b/secret', '../../outside/secret', 'd/../../../outside/secret'],
  },
  {
    name: 'links through proc',
    script:
      'ln -s /proc/self/root a; ln -s /proc/self/cwd b; ln -s /proc/1/root c; ln -s /proc/thread-self/root d',
    paths: ['a$OUTSIDE/secret', 'b/../../outside/secret', 'c$OUTSIDE/secret', 'd$OUTSIDE/secret'],
  },
  {
    name: 'links to descriptors',
    script: 'for i in $(seq 0 30); do ln -s /proc/self/fd/$i fd$i; done; ln -s /dev/stdin in',
    paths: ['fd3/../outside/secret', 'fd4/../../outside/secret'],
  },
  { name: 'links to itself', script: 'ln -s a a; ln -s c b; ln -s b c; ln -s d/x d' },
  {
    name: 'a chain of two hundred links',
    script: 'ln -s "$OUTSIDE/secret" l0; for i in $(seq 200); do ln -s l$((i-1)) l$i; done',
  },
  {
    name: 'a chain of links that doubles at each step',
    script: 'mkdir d0; for i in $(seq 30); do ln -s d$((i-1))/../d$((i-1)) d$i; done',
    paths: ['d30/x'],
  },
  { name: 'links to its own parents', script: 'ln -s . a; ln -s .. b; mkdir c; ln -s ../c c/c' },
  { name: 'links to devices', script: 'ln -s /dev/zero a; ln -s /dev/tty b; ln -s /dev/random c' },
  {
    name: 'a link whose target is as long as possible',
    script: `ln -s "$(head -c 4095 /dev/zero | tr '\\0' x)" a; ln -s "$(printf '../%.0s' $(seq 1000))" b`,
  },
  { name: 'a link whose target is not UTF-8', script: `ln -s $'\\xff\\xfe' a; ln -s $'\\n"' b` },
];

const KINDS: HostileTree[] = [
  { name: 'pipes', script: 'mkfifo a; mkdir d; mkfifo d/b', paths: ['a/x'] },
  {
    name: 'sockets',
    script: `python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('a')"`,
  },
  {
    name: 'devices',
    script: 'mknod a c 1 5 || true; mknod b c 5 0 || true; mknod d b 7 99 || true',
  },
  {
    name: 'a file with a lease',
    script: 'echo text >a',
    meanwhile: `exec python3 -c "import fcntl,time; f=open('a','w'); fcntl.fcntl(f,1024,1); time.sleep(60)"`,
  },
  {
    name: 'a file with holes of a terabyte',
    script: 'truncate -s 1T a; truncate -s 8191P b || true',
  },
  { name: 'permissions with all bits', script: 'touch a; chmod 7777 a; mkdir d; chmod 7777 d' },
  { name: 'no permissions', script: 'touch a; mkdir d; touch d/x; chmod 0 a d' },
  {
    name: 'times that cannot be',
    script: `touch -d @-99999999999 a; touch -d @99999999999999 b || touch b; touch -d 1900-01-01 c`,
  },
  {
    name: 'many names of one file',
    script: 'echo text >a; for i in $(seq 500); do ln a l$i; done',
  },
];

const NAMES: HostileTree[] = [
  {
    name: 'names that are not UTF-8',
    script: `touch $'a\\xff' $'a\\xfe' $'\\xed\\xa0\\x80' $'\\xc0\\xae\\xc0\\xae'; mkdir $'d\\xff'; touch $'d\\xff/x'`,
    paths: ['a\uFFFD', 'd\uFFFD/x'],
  },
  {
    name: 'names with control characters',
    script: `touch $'a\\nb' $'\\x1b[31mred' $'a\\rb' $'\\x7f' $'tab\\t'`,
  },
  {
    name: 'names that lead out on other systems',
    script: `touch '..\\\\..\\\\evil' 'C:\\\\evil' 'C:evil' '...' '.. ' 'nul' ' '`,
  },
  {
    name: 'names that look like options',
    script: 'touch -- -rf --help "-o x" "*" "\\$(id)" "a;id"',
  },
  {
    name: 'names as long as possible',
    script: `touch "$(head -c 255 /dev/zero | tr '\\0' a)" "$(printf '\\xff%.0s' $(seq 255))"`,
  },
  { name: 'names of drafts', script: 'touch .writing-0000000000000000 .removing-0000000000000000' },
  { name: 'twenty thousand names', script: 'seq 20000 | xargs touch' },
  {
    name: 'names that differ in case and form only',
    script: `touch a A $'e\\xcc\\x81' $'\\xc3\\xa9'`,
  },
];

const DEPTHS: HostileTree[] = [
  {
    name: 'folders in three hundred levels',
    script: 'for i in $(seq 300); do mkdir d && cd d; done; touch x',
    paths: [Array.from({ length: 300 }, () => 'd').join('/')],
  },
  {
    name: 'a path longer than the kernel takes',
    script: `n=$(head -c 200 /dev/zero | tr '\\0' a); for i in $(seq 60); do mkdir $n && cd $n; done; touch x`,
  },
  { name: 'two thousand folders', script: 'seq 2000 | xargs mkdir' },
];

/** What is checked may be another one when it is used. */
const RACES: HostileTree[] = [
  {
    name: 'a file that is swapped for a link',
    script: 'echo own >a; ln -s "$OUTSIDE/secret" b',
    meanwhile: SWAP('a', 'b'),
    rounds: 12,
  },
  {
    name: 'a folder that is swapped for a link',
    script: 'mkdir a; echo own >a/secret; ln -s "$OUTSIDE" b',
    meanwhile: SWAP('a', 'b'),
    paths: ['a/secret', 'a/./secret', 'b/secret'],
    rounds: 12,
  },
  {
    name: 'a link that changes its target',
    script: 'echo own >own; ln -s own a; ln -s "$OUTSIDE/secret" b',
    meanwhile: SWAP('a', 'b'),
    rounds: 12,
  },
  {
    name: 'a folder that moves while it is entered',
    script: 'mkdir -p a/b/c d; echo own >a/b/c/secret',
    meanwhile: 'while :; do mv a/b d/b && mv d/b a/b; done',
    paths: [
      'a/b/c/../../../../../outside/secret',
      'a/b/c/secret',
      'a/b/../../../../outside/secret',
    ],
    rounds: 12,
  },
  {
    name: 'a file that is swapped for a pipe',
    script: 'echo own >a; mkfifo b',
    meanwhile: SWAP('a', 'b'),
    rounds: 12,
  },
  {
    name: 'a file that grows',
    script: 'echo begun >a',
    meanwhile:
      'while :; do head -c 65536 /dev/zero >>a; [ $(stat -c %s a) -lt 50000000 ] || : >a; done',
    rounds: 10,
  },
  {
    name: 'a file that becomes shorter',
    script: 'head -c 8000000 /dev/zero >a',
    meanwhile: 'while :; do truncate -s 10 a; truncate -s 8000000 a; done',
    rounds: 10,
  },
  {
    name: 'folders that come and go',
    script: 'mkdir d',
    meanwhile: 'while :; do mkdir -p d/a/b; touch d/a/b/x; rm -rf d/a; done',
    rounds: 10,
  },
];

export const TREES: HostileTree[] = [...LINKS, ...KINDS, ...NAMES, ...DEPTHS, ...RACES];
