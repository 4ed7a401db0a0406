import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { names } from '../support/sandbox-processes.js';

const CGROUPS = '/sys/fs/cgroup';
const CGROUP_DEPTH = 4;

/** What a host has of things that outlive processes. */
export interface HostState {
  cgroups: ReadonlySet<string>;
}

export function hostState(): HostState {
  return { cgroups: new Set(cgroups(CGROUPS, CGROUP_DEPTH)) };
}

/** Kills processes until there are none, and unmounts what lies below a folder. */
export async function sweep(folder: string, processes: () => readonly number[]): Promise<void> {
  for (let rounds = 0; rounds < 20; rounds += 1) {
    const found = processes();
    for (const pid of found) kill(pid);
    if (found.length === 0) break;
    await delay(100);
  }
  for (const mount of mountsIn(folder).toReversed())
    spawnSync('umount', ['--lazy', mount], { stdio: 'ignore' });
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

function mountsIn(folder: string): string[] {
  return read('/proc/self/mountinfo')
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .filter((path) => path.startsWith(`${folder}/`));
}

/** What is left of a service whose files were in a folder: mounts, loop devices, control groups. */
export function hostRemains(before: HostState, folder: string): string[] {
  const mounts = mountsIn(folder).map((path) => `mount ${path}`);
  const loops = names('/sys/block')
    .filter((name) => read(join('/sys/block', name, 'loop/backing_file')).includes(folder))
    .map((name) => `loop device ${name}`);
  const installation = folder.split('/').at(-1) ?? folder;
  const groups = [...hostState().cgroups]
    .filter((path) => !before.cgroups.has(path) && path.includes(installation))
    .map((path) => `control group ${path}`);
  return [...mounts, ...loops, ...groups];
}

function cgroups(folder: string, depth: number): string[] {
  if (depth === 0) return [];
  return names(folder).flatMap((name) =>
    name.includes('.') ? [] : [join(folder, name), ...cgroups(join(folder, name), depth - 1)],
  );
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
