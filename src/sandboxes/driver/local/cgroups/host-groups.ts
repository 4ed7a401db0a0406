import { posix } from 'node:path';

/** What limits processes of a group, by our names. */
export type Resource = 'memory' | 'processes' | 'cpu';

/** The kernel's names of them. */
export const CONTROLLERS: Readonly<Record<Resource, string>> = {
  memory: 'memory',
  processes: 'pids',
  cpu: 'cpu',
};

/** Where groups can be made, going by what the kernel shows of mounts and of this process. */
export type HostGroups =
  | { version: 1; folders: Partial<Record<Resource, string>> }
  | {
      version: 2;
      /** The top of what this process sees of the hierarchy, and its own place there. */
      top: string;
      own: string;
    };

interface Mount {
  root: string;
  folder: string;
  type: string;
  options: readonly string[];
}

function parseMounts(mountinfo: string): Mount[] {
  return mountinfo
    .split('\n')
    .filter((line) => line.includes(' - cgroup'))
    .map((line) => {
      const [before = '', after = ''] = line.split(' - ');
      const [, , , root = '/', folder = ''] = before.split(' ');
      const [type = '', , options = ''] = after.split(' ');
      return { root, folder, type, options: options.split(',') };
    });
}

/** A group's path as a folder below the mount, which may show only a part of the hierarchy. */
function folderOf(mount: Mount, path: string): string {
  const below = posix.relative(mount.root, path);
  return below.startsWith('..') ? mount.folder : posix.join(mount.folder, below);
}

/**
 * Reads `/proc/self/mountinfo` and `/proc/self/cgroup`. With both versions mounted, version 1 is meant where it has the
 * controllers. `null`: no groups here.
 */
export function findHostGroups(mountinfo: string, ownGroups: string): HostGroups | null {
  const mounts = parseMounts(mountinfo);
  const own = new Map(
    ownGroups
      .split('\n')
      .map((line) => /^\d+:([^:]*):(.*)$/.exec(line))
      .filter((match) => match !== null)
      .flatMap(([, names = '', path = '/']) =>
        names.split(',').map((name) => [name, path] as const),
      ),
  );
  const folders: Partial<Record<Resource, string>> = {};
  for (const [resource, controller] of Object.entries(CONTROLLERS) as [Resource, string][]) {
    const mount = mounts.find(
      ({ type, options }) => type === 'cgroup' && options.includes(controller),
    );
    const path = own.get(controller);
    if (mount !== undefined && path !== undefined) folders[resource] = folderOf(mount, path);
  }
  if (Object.keys(folders).length > 0) return { version: 1, folders };
  const unified = mounts.find(({ type }) => type === 'cgroup2');
  if (unified === undefined) return null;
  return { version: 2, top: unified.folder, own: folderOf(unified, own.get('') ?? '/') };
}
