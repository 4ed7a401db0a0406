import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CONTROLLERS, type Resource } from './host-groups.js';

/** One file of a group and its new value. `optional`: some kernels do not have the file. */
export type Setting = readonly [file: string, value: string | number, optional?: 'optional'];

export async function apply(group: string, [file, value, optional]: Setting): Promise<void> {
  try {
    await writeFile(join(group, file), String(value));
  } catch (error) {
    if (optional === undefined) throw error;
  }
}

/** The resources whose controllers a cgroup v2 group can delegate to its children. */
export async function controllersOf(group: string): Promise<Resource[]> {
  const there = (await readFile(join(group, 'cgroup.controllers'), 'utf8')).trim().split(' ');
  return (Object.keys(CONTROLLERS) as Resource[]).filter((resource) =>
    there.includes(CONTROLLERS[resource]),
  );
}

export async function enable(group: string, resources: readonly Resource[]): Promise<void> {
  const names = resources.map((resource) => `+${CONTROLLERS[resource]}`).join(' ');
  if (names !== '') await writeFile(join(group, 'cgroup.subtree_control'), names);
}

/**
 * Moves the processes of a cgroup v2 group to a child, because a group cannot have both processes and controlled
 * children.
 */
export async function vacate(group: string): Promise<void> {
  const leaf = join(group, 'service');
  await mkdir(leaf, { recursive: true });
  for (const pid of await pidsIn(group, false)) {
    await writeFile(join(leaf, 'cgroup.procs'), String(pid)).catch(() => undefined);
  }
}

export async function pidsIn(group: string, deep = true): Promise<number[]> {
  const text = await readFile(join(group, 'cgroup.procs'), 'utf8').catch(() => '');
  const own = text.split('\n').filter(Boolean).map(Number);
  if (!deep) return own;
  const below = await Promise.all(
    (await childrenOf(group)).map((name) => pidsIn(join(group, name))),
  );
  return own.concat(...below);
}

export async function childrenOf(group: string): Promise<string[]> {
  const entries = await readdir(group, { withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
}

/** Removes a group. Safe at any time, because the kernel refuses to remove a group that has processes. */
export async function removeGroup(group: string): Promise<void> {
  for (const name of await childrenOf(group)) await rmdir(join(group, name)).catch(() => undefined);
  await rmdir(group).catch(() => undefined);
}
