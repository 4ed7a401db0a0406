import { readFileSync } from 'node:fs';
import { chown, mkdir } from 'node:fs/promises';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { NO_NETWORK, type Isolation } from './isolation.js';
import { barrierTo, findProgram, type Host } from './host.js';
import { runInside } from './start-supervisor.js';
import type { LocalSandboxOptions } from './options.js';
import { SandboxFolder } from './sandbox-store.js';
import type { Launcher } from './launcher/launcher.js';

const WAY_OUT =
  'or set SANDBOX_ISOLATION=degraded to run agents without isolation, if you accept that they can read whatever this machine shows';

const INSTALL_COMMANDS: readonly [manager: string, command: string][] = [
  ['apt-get', 'apt-get install -y'],
  ['dnf', 'dnf install -y'],
  ['apk', 'apk add'],
  ['pacman', 'pacman -S --noconfirm'],
  ['zypper', 'zypper install -y'],
];

/** The command that installs a package on this host. */
function installCommand(packageName: string, root: boolean): string {
  const [, command] = INSTALL_COMMANDS.find(([manager]) => findProgram(manager) !== null) ?? [
    '',
    'install the package',
  ];
  return `${root ? '' : 'sudo '}${command} ${packageName}`;
}

function readSetting(path: string): string | null {
  try {
    return readFileSync(`/proc/sys/${path}`, 'utf8').trim();
  } catch {
    return null;
  }
}

/** Why namespaces cannot be had, as far as the kernel says so, and what changes that. */
function remedy(): string {
  if (readSetting('kernel/apparmor_restrict_unprivileged_userns') === '1') {
    return 'AppArmor restricts user namespaces: run `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`';
  }
  if (readSetting('kernel/unprivileged_userns_clone') === '0') {
    return 'user namespaces are switched off: run `sysctl -w kernel.unprivileged_userns_clone=1`';
  }
  if (readSetting('user/max_user_namespaces') === '0') {
    return 'user namespaces are switched off: run `sysctl -w user.max_user_namespaces=15000`';
  }
  return 'in a container, start it with `--security-opt seccomp=unconfined --security-opt systempaths=unconfined --security-opt apparmor=unconfined`';
}

function requirePrograms(host: Host): void {
  if (process.platform !== 'linux') {
    throw new SandboxError(
      'unavailable',
      `isolation needs Linux namespaces, which ${process.platform} does not have: run the service on Linux or in a container, ${WAY_OUT}`,
    );
  }
  const missing = [...(host.bwrap === null ? (['bubblewrap'] as const) : [])];
  if (missing.length > 0) {
    throw new SandboxError(
      'unavailable',
      `${missing.join(' and ')} not installed: run \`${installCommand(missing.join(' '), host.root)}\`, ${WAY_OUT}`,
    );
  }
}

/** What compiles `native/confine.c`, by package manager; the same words are in scripts/lib/system-packages.mjs. */
const COMPILERS: Readonly<Record<string, string>> = {
  'apt-get': 'gcc libc6-dev',
  dnf: 'gcc glibc-static',
  apk: 'gcc musl-dev',
  pacman: 'gcc',
  zypper: 'gcc glibc-devel-static',
};

/** @throws SandboxError `unavailable` where the program that confines agents was not built */
function requireConfine(host: Host): void {
  if (host.confine) return;
  const manager = INSTALL_COMMANDS.map(([name]) => name).find((name) => findProgram(name) !== null);
  const compiler = COMPILERS[manager ?? ''] ?? 'a C compiler with a static C library';
  throw new SandboxError(
    'unavailable',
    `the program that confines agents was not built: run \`${installCommand(compiler, host.root)}\`, then build and start the service again`,
  );
}

/**
 * Enters a sandbox for real, once.
 * @param user the kernel user to try it with, `null` for the service's own
 * @throws SandboxError `unavailable` with cause and way out
 */
export async function checkStrict(options: {
  host: Host;
  launcher: Launcher;
  isolation: Isolation;
  probeFolder: string;
  user: number | null;
  signal: AbortSignal;
}): Promise<void> {
  const { host, launcher, isolation, user, signal } = options;
  requirePrograms(host);
  requireConfine(host);
  const folder = new SandboxFolder(options.probeFolder);
  for (const path of [folder.path, folder.files, folder.home, folder.workspace, folder.tmp]) {
    await mkdir(path, { recursive: true, mode: 0o711 });
    if (user !== null) await chown(path, user, user);
  }
  const record = {
    version: 1,
    uid: user,
    writableRoot: false,
    baseBytes: 0,
    network: NO_NETWORK,
  } as const;
  const command = isolation.inside(folder, record, {
    operands: ['/bin/sh', '-c', 'exit 0'],
  });
  const { exitCode, output } = await runInside(launcher, {
    ...command,
    stdin: Buffer.alloc(0),
    signal,
  });
  if (exitCode === 0) return;
  const cause = output.split('\n').at(-1) ?? '';
  throw new SandboxError(
    'unavailable',
    `no sandbox can be made here (${cause}): ${remedy()}, ${WAY_OUT}`,
  );
}

/** @throws SandboxError `unavailable` if even the degraded way is closed */
export function checkDegraded(host: Host, options: LocalSandboxOptions): void {
  requireConfine(host);
  if (!host.root) return;
  const barrier = barrierTo(options.stateDir);
  if (barrier !== null) {
    throw new SandboxError(
      'unavailable',
      `the users of sandboxes cannot reach ${options.stateDir}: let others pass ${barrier} (chmod o+x), or set DATA_DIR to a folder elsewhere`,
    );
  }
}
