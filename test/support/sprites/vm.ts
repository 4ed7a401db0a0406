import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { packageRoot } from '../../../src/common/package-root.js';
import { confineProgram } from '../../../src/supervisor/confine.js';

const run = promisify(execFile);

/** The vendor's default user: not root, but with every capability, and allowed to use sudo without a password. */
const DEFAULT_USER = 19_001;
const ENVIRONMENT = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  HOME: '/home/sprite',
  USER: 'sprite',
  LANG: 'C.UTF-8',
};

/** All capabilities of this process, as setpriv names them: a container of a test may lack some. */
const CAPABILITIES = ownCapabilities();

/** Mounts the root of the machine and becomes its init. Arguments: folder, init, Node, folders of the host to cover. */
const BOOT = `set -e
vm=$1 init=$2 node=$3; shift 3
m=$vm/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$vm/upper,workdir=$vm/work" "$m"
for folder; do mkdir -p "$vm/own$folder" "$m$folder"; chmod 755 "$vm/own$folder"; mount --bind "$vm/own$folder" "$m$folder"; done
umask 022
chmod 1777 "$m/var/tmp"
mount -t tmpfs -o mode=1777 tmpfs "$m/tmp"
mount -t tmpfs -o mode=755 tmpfs "$m/run"
mount -t proc proc "$m/proc"
mount -t tmpfs -o mode=755 tmpfs "$m/dev"
for name in null zero full random urandom tty; do : > "$m/dev/$name"; mount --bind "/dev/$name" "$m/dev/$name"; done
mkdir "$m/dev/shm" "$m/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$m/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$m/dev/pts"
ln -s pts/ptmx "$m/dev/ptmx"
ln -s /proc/self/fd "$m/dev/fd"
for n in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/\${n%%:*}" "$m/dev/\${n#*:}"; done
mkdir -p "$m/.sprite" "$m/.init"
mount --bind "$vm/api" "$m/.sprite"
: > "$m/usr/local/bin/node"; mount --bind "$node" "$m/usr/local/bin/node"
: > "$m/.init/init"; mount --bind "$init" "$m/.init/init"
rm -f "$m/etc/resolv.conf"; cp "$vm/resolv.conf" "$m/etc/resolv.conf"
rm -f "$m/etc/hosts"; echo 127.0.0.1 localhost > "$m/etc/hosts"
# npm reads its global settings from a folder below the prefix that it is given, and these from its own.
npm=$(readlink -f "$(PATH=/usr/local/bin:/usr/bin command -v npm)") || npm=
[ -z "$npm" ] || cat /usr/etc/npmrc /usr/local/etc/npmrc 2>/dev/null > "$m\${npm%/bin/*}/npmrc" || :
if ! grep -q ^sprite: "$m/etc/passwd"; then
  echo sprite:x:${DEFAULT_USER}:${DEFAULT_USER}::/home/sprite:/bin/bash >> "$m/etc/passwd"
  mkdir -p "$m/home/sprite"; chown ${DEFAULT_USER}:${DEFAULT_USER} "$m/home/sprite"
  cp "$vm/sudo" "$m/usr/local/bin/sudo"; chmod 755 "$m/usr/local/bin/sudo"
fi
cd "$m"; mkdir -p .before; pivot_root . .before; umount -l /.before
exec /.init/init --idle </dev/null >/dev/null 2>&1
`;

/** As sudo does for a user with all capabilities and a rule without a password. */
const SUDO = `#!/bin/sh
while :; do case $1 in -n) shift;; --) shift; break;; *) break;; esac; done
exec /usr/bin/setpriv --reuid=0 --regid=0 --clear-groups -- "$@"
`;

/** A network of two addresses between the host and a machine. */
export interface Cable {
  /** Of the interface on the host. */
  name: string;
  host: string;
  machine: string;
}

let cables = 0;
let network: string | undefined;

/** A prefix of IPv4 addresses that no interface of this host uses. Test files run in several processes at once. */
function freeNetwork(): string {
  const taken = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  for (let n = 0; n < 128; n += 1) {
    const start = `10.${64 + ((process.pid + n) % 128)}.`;
    if (!taken.some(({ address }) => address.startsWith(start))) return start;
  }
  throw new Error('this host has no addresses left for sprites');
}

/** A cable that no other machine of this host has. */
export function newCable(): Cable {
  cables += 1;
  network ??= freeNetwork();
  const net = `${network}${(cables >> 6) & 255}`;
  const first = (cables & 63) * 4;
  const name = `fs${process.pid.toString(36)}-${cables.toString(36)}`;
  return { name, host: `${net}.${first + 1}`, machine: `${net}.${first + 2}` };
}

/** What to run in the machine. */
export interface Command {
  command: readonly string[];
  env?: Readonly<Record<string, string>> | undefined;
  directory?: string | undefined;
  /** Default: the vendor's default user. */
  root?: boolean;
}

/**
 * A sprite's machine: a root file system, process ids, mounts and users of its own over the kernel of the host. Unlike a
 * real one it shares the host's network and kernel. Its processes are gone when it stops; its files are kept.
 */
export class Machine {
  private boot: ChildProcess | undefined;
  private init = 0;
  private readonly entered = new Set<ChildProcess>();

  /**
   * @param folder holds all files of the machine, on a file system that can hold an overlay
   * @param link its only network: a cable to the host
   */
  constructor(
    readonly folder: string,
    private readonly link: Cable,
  ) {}

  get runs(): boolean {
    return this.boot !== undefined && this.boot.exitCode === null && this.boot.signalCode === null;
  }

  async start(): Promise<void> {
    if (this.runs) return;
    for (const part of ['root', 'upper', 'work', 'own', 'api']) {
      await mkdir(join(this.folder, part), { recursive: true });
    }
    await writeFile(join(this.folder, 'resolv.conf'), `nameserver ${this.link.host}\n`);
    await writeFile(join(this.folder, 'sudo'), SUDO);
    const top = `/${process.cwd().split('/')[1] ?? ''}`;
    const covered = [...new Set(['/root', '/home', '/var/tmp', top])];
    const boot = spawn(
      'unshare',
      [
        ...['--mount', '--pid', '--net', '--fork', '--kill-child', '--propagation', 'private'],
        ...['/bin/sh', '-c', BOOT, 'sh', this.folder, confineProgram(packageRoot())],
        ...[process.execPath, ...covered],
      ],
      { stdio: ['ignore', 'ignore', 'pipe'] },
    );
    this.boot = boot;
    let said = '';
    boot.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
    for (;;) {
      if (!this.runs) throw new Error(`the machine did not start: ${said}`);
      const [init] = childrenOf(boot.pid ?? 0);
      if (init !== undefined && commandOf(init).startsWith('/.init/init')) {
        this.init = init;
        return this.connect();
      }
      await delay(5);
    }
  }

  /** It reaches the host and nothing else: the vendor blocks addresses that no allowed name has. */
  private async connect(): Promise<void> {
    const { name, host, machine } = this.link;
    const init = String(this.init);
    const inside = (...args: string[]) =>
      run('nsenter', [`--target=${init}`, '--net', 'ip', ...args]);
    // The one of the machine before this one goes away some time after it.
    await run('ip', ['link', 'delete', name]).catch(() => undefined);
    await run('ip', ['link', 'add', name, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', init]);
    await run('ip', ['address', 'add', `${host}/30`, 'dev', name]);
    await run('ip', ['link', 'set', name, 'up']);
    await inside('address', 'add', `${machine}/30`, 'dev', 'eth0');
    await inside('link', 'set', 'eth0', 'up');
    await inside('link', 'set', 'lo', 'up');
  }

  /** Starts a process. The machine must run. */
  spawn({ command, env, directory, root }: Command): ChildProcess {
    const rights = root
      ? []
      : [
          ...['/usr/bin/setpriv', `--reuid=${DEFAULT_USER}`, `--regid=${DEFAULT_USER}`],
          ...['--clear-groups', `--inh-caps=${CAPABILITIES}`],
          ...[`--ambient-caps=${CAPABILITIES}`, '--'],
        ];
    const variables = Object.entries(env ?? ENVIRONMENT).map(([name, value]) => `${name}=${value}`);
    const entered = spawn(
      'nsenter',
      [
        ...[
          `--target=${this.init}`,
          '--mount',
          '--pid',
          '--net',
          '--root',
          '--wd=/',
          '--',
          ...rights,
        ],
        ...['/usr/bin/env', '-i', '-C', directory ?? (root ? '/' : '/home/sprite'), ...variables],
        ...command,
      ],
      { stdio: ['pipe', 'pipe', 'pipe'], detached: true },
    );
    this.entered.add(entered);
    return entered.once('exit', () => this.entered.delete(entered));
  }

  /** All its processes except init, as the host numbers them. */
  processes(): number[] {
    return this.runs ? inNamespaceOf(this.init).filter((pid) => pid !== this.init) : [];
  }

  /** Stops all its processes in place, or continues them. */
  signalAll(name: 'SIGSTOP' | 'SIGCONT'): void {
    for (const pid of this.processes()) kill(pid, name);
    if (name === 'SIGCONT') this.continueEntered();
  }

  /** nsenter stops itself with its child, and the machine ends only when nsenter has seen the end of that. */
  private continueEntered(): void {
    for (const { pid } of this.entered) kill(pid ?? 0, 'SIGCONT');
  }

  /** Ends all its processes at once. */
  async stop(): Promise<void> {
    const { boot } = this;
    if (boot === undefined || !this.runs) return;
    const ended = once(boot, 'exit');
    kill(this.init, 'SIGKILL');
    const again = setInterval(() => this.continueEntered(), 10);
    await ended;
    clearInterval(again);
  }

  /** Stops it and removes its files. */
  async remove(): Promise<void> {
    await this.stop();
    // Node's own cannot remove paths that are longer than the kernel takes at once.
    await run('rm', ['-rf', '--', this.folder]);
  }

  /** Copies its files, or puts a copy in their place. It must be stopped for the latter. */
  async save(copy: string): Promise<void> {
    await mkdir(copy, { recursive: true });
    for (const part of ['upper', 'own']) {
      await run('cp', ['-a', join(this.folder, part), copy]);
    }
  }

  async restore(copy: string): Promise<void> {
    for (const part of ['upper', 'own', 'work']) {
      await run('rm', ['-rf', '--', join(this.folder, part)]);
    }
    for (const part of ['upper', 'own']) {
      await run('cp', ['-a', join(copy, part), this.folder]);
    }
  }
}

/** Ends a process in a machine with everything that is still below it. */
export function killTree(pid: number, name: NodeJS.Signals): void {
  for (const child of childrenOf(pid)) killTree(child, name);
  kill(pid, name);
}

/** The process that nsenter started. */
export function signalCommand(nsenter: number, name: NodeJS.Signals): void {
  for (const child of childrenOf(nsenter)) kill(child, name);
}

function kill(pid: number, name: NodeJS.Signals): void {
  if (pid <= 1) return;
  try {
    process.kill(pid, name);
  } catch {
    // It has ended.
  }
}

function childrenOf(pid: number): number[] {
  return read(`/proc/${pid}/task/${pid}/children`).split(' ').filter(Boolean).map(Number);
}

function commandOf(pid: number): string {
  return read(`/proc/${pid}/cmdline`);
}

function inNamespaceOf(init: number): number[] {
  const all = [init];
  const seen = new Set(all);
  // Everything in a namespace of processes descends from its init, or was entered into it by nsenter.
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name) || seen.has(Number(name))) continue;
    const numbers = /^NSpid:\s+(.*)$/m.exec(read(`/proc/${name}/status`))?.[1]?.split(/\s+/) ?? [];
    if (numbers.length > 1 && sameNamespace(Number(name), init)) all.push(Number(name));
  }
  return all;
}

function sameNamespace(pid: number, init: number): boolean {
  return namespaceOf(pid) === namespaceOf(init) && namespaceOf(pid) !== '';
}

function namespaceOf(pid: number): string {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`);
  } catch {
    return '';
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function ownCapabilities(): string {
  const held = BigInt(`0x${/^CapPrm:\s+(\w+)$/m.exec(read('/proc/self/status'))?.[1] ?? '0'}`);
  const all = Array.from({ length: 64 }, (_, n) => n).filter((n) => (held >> BigInt(n)) & 1n);
  return all.map((n) => `+cap_${n}`).join(',') || '-all';
}
