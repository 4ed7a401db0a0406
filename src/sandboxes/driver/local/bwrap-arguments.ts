import { join } from 'node:path';
import { confineProgram } from '../../../supervisor/confine.js';
import {
  CERTIFICATES,
  CERTIFICATES_FILE,
  CONFINE,
  IDENTITY_FILES,
  PROGRAMS,
  TOOLS,
} from './base-files.js';
import {
  AGENT_ID,
  HOME,
  HOST_NAME,
  WORKSPACE,
  type SandboxLimits,
} from '../../../supervisor/sandbox-options.js';
import type { RootEntry } from './host.js';
import type { SandboxFolder } from './sandbox-store.js';

/** Where things are for a process that has the sandbox's kernel user. */
export interface View {
  node: string;
  /** The folder that has `dist`, `node_modules` and `package.json`. */
  app: string;
  /** The sandbox's own folder. */
  sandbox: string;
  /** The folder with the identity files. */
  etc: string;
  tools: string | null;
  /** The folder of the programs that this sandbox is given. */
  programs: string | null;
  /** The folder with the gateway's socket. */
  gateway: string | null;
}

/** The system that a sandbox stands on: the host's, read-only, or a copy of a template that it may change. */
export type SystemRoot =
  | {
      kind: 'host';
      entries: readonly RootEntry[];
      etc: readonly string[];
      hidden: readonly string[];
    }
  | { kind: 'own'; entries: readonly RootEntry[]; folders: readonly string[] };

/**
 * A mount namespace made by real root in which `view` is at hand wherever the originals lie, even below a folder that
 * the sandbox's user may not pass. `base` is an existing folder; what it holds on the host is only out of sight.
 */
export function viewArguments(origin: View, view: View, base: string): string[] {
  const bind = (option: string, from: string, to: string): string[] => [option, from, to];
  return [
    ['--cap-add', 'ALL', '--dev-bind', '/', '/', '--tmpfs', base],
    // Folders that bubblewrap makes on the way to a mount are for root alone.
    ['--perms', '0755', '--dir', view.app],
    bind('--ro-bind', origin.node, view.node),
    ['dist', 'node_modules', 'package.json'].flatMap((part) =>
      bind('--ro-bind', join(origin.app, part), join(view.app, part)),
    ),
    bind('--ro-bind', origin.etc, view.etc),
    origin.tools !== null && view.tools !== null ? bind('--ro-bind', origin.tools, view.tools) : [],
    origin.programs !== null && view.programs !== null
      ? bind('--ro-bind', origin.programs, view.programs)
      : [],
    origin.gateway !== null && view.gateway !== null
      ? bind('--ro-bind', origin.gateway, view.gateway)
      : [],
    bind('--bind', origin.sandbox, view.sandbox),
  ].flat();
}

/** The outer namespaces: a network of its own with nothing but loopback, and the right to serve it. */
export function nestArguments(): string[] {
  return [
    ['--dev-bind', '/', '/', '--unshare-net', '--die-with-parent'],
    ['--unshare-user', '--uid', '0', '--gid', '0', '--cap-add', 'ALL'],
  ].flat();
}

function systemArguments(root: SystemRoot, view: View, own: string): string[] {
  if (root.kind === 'own') {
    return [
      root.folders.flatMap((folder) => ['--bind', join(own, folder), folder]),
      root.entries.flatMap(({ path, link }) =>
        link === null ? ['--bind', join(own, path), path] : ['--symlink', link, path],
      ),
    ].flat();
  }
  return [
    ['--ro-bind', '/usr', '/usr'],
    root.hidden.flatMap((folder) => [
      '--perms',
      '0555',
      '--size',
      '4096',
      '--tmpfs',
      folder,
      '--remount-ro',
      folder,
    ]),
    root.entries.flatMap(({ path, link }) =>
      link === null ? ['--ro-bind', path, path] : ['--symlink', link, path],
    ),
    root.etc.flatMap((path) => ['--ro-bind', path, path]),
    Object.keys(IDENTITY_FILES).flatMap((name) => [
      '--ro-bind',
      join(view.etc, name),
      `/etc/${name}`,
    ]),
    ['--dir', '/var', '--symlink', '/tmp', '/var/tmp', '--dir', '/root', '--dir', '/opt'],
  ].flat();
}

/**
 * The sandbox itself, made inside the outer namespaces. `setup` is root of it, with just the rights that installing
 * software takes; `agent` has none. Every mount lies on the root, which is a read-only file system of its own, or on
 * something that the agent cannot write: bubblewrap before 0.12 follows links there.
 */
export function sandboxArguments(options: {
  profile: 'agent' | 'setup';
  root: SystemRoot;
  view: View;
  /** The sandbox's folder as `view` has it. */
  folder: SandboxFolder;
  /** Its own system, if it has one, as `view` has it. */
  system: string;
  limits: SandboxLimits;
  /** Whether the operator has added certificates. */
  hasCertificates: boolean;
}): string[] {
  const { profile, root, view, folder, system, limits, hasCertificates } = options;
  const id = String(profile === 'setup' ? 0 : AGENT_ID);
  const size = String(limits.tmpBytes);
  const capabilities = profile === 'setup' ? ['DAC_OVERRIDE', 'FOWNER', 'CHOWN', 'SETFCAP'] : [];
  return [
    ['--unshare-user', '--uid', id, '--gid', id],
    ['--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try'],
    ['--hostname', HOST_NAME, '--new-session', '--die-with-parent', '--cap-drop', 'ALL'],
    capabilities.flatMap((name) => ['--cap-add', `CAP_${name}`]),
    systemArguments(root, view, system),
    ['--proc', '/proc', '--ro-bind', '/proc/sys', '/proc/sys'],
    ['--dev', '/dev', '--perms', '1777', '--size', size, '--tmpfs', '/dev/shm'],
    ['--remount-ro', '/dev'],
    ['--bind', folder.tmp, '/tmp'],
    ['--perms', '0755', '--size', String(Math.ceil(limits.tmpBytes / 16)), '--tmpfs', '/run'],
    ['--ro-bind', confineProgram(view.app), CONFINE],
    view.tools === null ? [] : ['--ro-bind', view.tools, TOOLS],
    view.programs === null ? [] : ['--ro-bind', view.programs, PROGRAMS],
    hasCertificates ? ['--ro-bind', join(view.etc, CERTIFICATES_FILE), CERTIFICATES] : [],
    ['--bind', folder.home, HOME],
    ['--bind', folder.workspace, WORKSPACE],
    ['--remount-ro', '/'],
  ].flat();
}
