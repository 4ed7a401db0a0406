import { cp, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { formatSources } from '../../../../supervisor/package-hosts.js';
import { NAMESERVER } from '../../../../supervisor/relay/listener-plan.js';
import { runContained } from './contained.js';
import type { HostApt } from './host-apt.js';

/** Packages that coding agents expect, beyond Debian's minimal system. */
export const ROOTFS_PACKAGES: readonly string[] =
  'curl git less openssh-client patch procps python3 python3-pip python3-venv ripgrep unzip xz-utils'.split(
    ' ',
  );

const CERTIFICATES = '/usr/local/share/ca-certificates';

const APT_CONFIGURATION = `APT::Sandbox::User "root";
Acquire::Languages "none";
Dpkg::Use-Pty "false";
`;

/** Leaves out manuals, because every sandbox gets a copy of the system. */
const DPKG_CONFIGURATION = ['doc/*', 'man/*', 'info/*', 'locale/*', 'lintian/*']
  .map((path) => `path-exclude=/usr/share/${path}\n`)
  .concat(
    'path-include=/usr/share/doc/*/copyright\n',
    'path-include=/usr/share/locale/locale.alias\n',
  )
  .join('');

const FINISH = `
set -e
update-ca-certificates >/dev/null
apt-get -q -y update
apt-get -q -y -o Dpkg::Options::=--force-confold dist-upgrade
apt-get -q -y -o Dpkg::Options::=--force-confold --no-install-recommends install "$@"
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old /var/lib/dpkg/*-old
rm -rf /usr/share/man/* /usr/share/info/* /usr/share/lintian
find /usr/share/doc -mindepth 1 ! -type d ! -name copyright -delete
find /usr/share/doc -mindepth 1 -type d -empty -delete
find /usr/share/locale -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
find /var/log -type f -delete
: >/etc/machine-id
rm -f /var/lib/dbus/machine-id
`;

/** Makes a root file system in an empty folder. Ownership and contents as `ensureRootfs` says. */
export async function buildRootfs(options: {
  root: string;
  apt: HostApt;
  signal: AbortSignal;
  onProgress: (message: string) => void;
}): Promise<void> {
  const { root, apt, signal, onProgress } = options;
  // User namespaces do not allow making device nodes. In a container, debootstrap uses those that are mounted.
  const env = { DEBIAN_FRONTEND: 'noninteractive', container: 'lxc', ...apt.proxies };
  await mkdir(join(root, 'dev'), { recursive: true });

  onProgress('downloading the base system');
  const check = apt.unsigned ? '--no-check-gpg' : '--force-check-gpg';
  const keyring = apt.keyring === undefined ? [] : [`--keyring=${apt.keyring}`];
  await runContained({
    mounts: [
      ['--ro-bind', '/', '/', '--dev', '/dev', '--tmpfs', '/tmp', '--bind', root, root],
      ['--dev', join(root, 'dev')],
    ].flat(),
    command: [
      ['debootstrap', '--foreign', '--variant=minbase', '--include=ca-certificates'],
      [check, ...keyring, apt.codename, root, apt.mirror],
    ].flat(),
    env,
    signal,
  });

  const inside = ['--bind', root, '/', '--dev', '/dev', '--tmpfs', '/tmp', '--tmpfs', '/run'];
  onProgress('configuring the base system');
  await runContained({
    mounts: inside,
    command: ['/debootstrap/debootstrap', '--second-stage'],
    env,
    signal,
  });

  await configure(root, apt);
  onProgress('installing updates and tools');
  await runContained({
    mounts: [...inside, '--ro-bind', '/etc/resolv.conf', '/run/resolv.conf'],
    command: ['/bin/sh', '-s', ...ROOTFS_PACKAGES],
    input: `cp /run/resolv.conf /etc/resolv.conf\n${FINISH}`,
    env,
    signal,
  });

  await writeEtc(root, {
    'resolv.conf': `nameserver ${NAMESERVER}\n`,
    hosts: '127.0.0.1 localhost\n::1 localhost\n',
    hostname: 'sandbox\n',
  });
  for (const name of await readdir(join(root, 'dev'))) {
    await rm(join(root, 'dev', name), { recursive: true, force: true });
  }
}

/** Copies the host's package sources with their keys and network settings, but without credentials. */
async function configure(root: string, apt: HostApt): Promise<void> {
  await rm(join(root, 'etc/apt/sources.list'), { force: true });
  await writeEtc(root, {
    'apt/sources.list.d/distribution.sources': formatSources(apt.sources),
    'apt/apt.conf.d/80sandbox': APT_CONFIGURATION,
    'apt/apt.conf.d/90host': apt.configuration,
    'dpkg/dpkg.cfg.d/sandbox': DPKG_CONFIGURATION,
  });
  for (const path of ['/etc/apt/trusted.gpg', ...apt.keyFiles]) await carry(path, root);
  for (const path of ['/etc/apt/trusted.gpg.d', '/etc/apt/keyrings', CERTIFICATES]) {
    await carry(path, root);
  }
  const policy = join(root, 'usr/sbin/policy-rc.d');
  await writeFile(policy, '#!/bin/sh\n# No service starts by being installed.\nexit 101\n', {
    mode: 0o755,
  });
}

async function carry(path: string, root: string): Promise<void> {
  const target = join(root, path);
  await mkdir(dirname(target), { recursive: true });
  try {
    await cp(path, target, { recursive: true, dereference: true });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // apt on the host works without a key that is missing or that only root can read.
    if (code !== 'ENOENT' && code !== 'EACCES') throw error;
  }
}

async function writeEtc(root: string, files: Record<string, string>): Promise<void> {
  for (const [name, content] of Object.entries(files)) {
    const path = join(root, 'etc', name);
    await mkdir(dirname(path), { recursive: true });
    await rm(path, { force: true });
    await writeFile(path, content, { mode: 0o644 });
  }
}
