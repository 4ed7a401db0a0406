import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** The service itself reads what its sandboxes write. */
const SERVICE = /dist\/src\/main\.js/;

/**
 * The processes of this machine that work for a folder, and their descendants: named in their arguments, as their
 * working directory or among their open files. A supervisor has its spool open, and all that runs in a sandbox descends
 * from one. The service and the caller are not counted.
 */
export function processesWithin(folder: string): number[] {
  const all = names('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => ({ pid: Number(pid), parent: parentOf(pid), own: worksFor(pid, folder) }));
  const found = new Set(all.filter(({ own }) => own).map(({ pid }) => pid));
  for (let size = -1; size !== found.size;) {
    size = found.size;
    for (const { pid, parent } of all) if (found.has(parent)) found.add(pid);
  }
  return [...found];
}

function worksFor(pid: string, folder: string): boolean {
  if (Number(pid) === process.pid) return false;
  const command = commandOf(pid);
  if (SERVICE.test(command)) return false;
  const open = names(`/proc/${pid}/fd`).map((fd) => link(`/proc/${pid}/fd/${fd}`));
  return [command, link(`/proc/${pid}/cwd`), ...open].some((text) => text.includes(folder));
}

/** The arguments, for people. */
export const commandOf = (pid: string | number): string =>
  read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ');

/** The name in brackets may itself hold spaces and brackets; what counts comes after it. */
const parentOf = (pid: string): number =>
  Number((read(`/proc/${pid}/stat`).split(') ').at(-1) ?? '').split(' ')[1]);

/** What is in a folder; nothing, when it is not there or not for us to read. */
export function names(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
}

function link(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}
