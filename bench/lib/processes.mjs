import { readdirSync, readFileSync } from 'node:fs';

const TICK_MS = 10;
const PAGE = 4096;

/** The process and all its descendants. */
export function tree(pid) {
  const children = new Map();
  for (const each of processes()) {
    const stat = statOf(each);
    if (!stat) continue;
    const parent = Number(stat[1]);
    children.set(parent, [...(children.get(parent) ?? []), each]);
  }
  const all = [pid];
  for (const at of all) all.push(...(children.get(at) ?? []));
  return all;
}

/** The ids of all processes of this machine that can be seen. */
export function processes() {
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .map(Number);
}

/** The command line of a process as a list; empty if the process is gone. */
export function commandOf(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
  } catch {
    return [];
  }
}

/** The memory of this process in bytes, with its share of what it shares with others; 0 if it is gone. */
export function proportionalBytes(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
    return Number(/^Pss:\s+(\d+) kB/m.exec(text)?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}

/** User and system time of the process in milliseconds; with `ended`, including its ended children. */
export function cpuMs(pid, { ended = false } = {}) {
  const stat = statOf(pid);
  if (!stat) return 0;
  const ticks = [11, 12, ...(ended ? [13, 14] : [])].reduce((sum, at) => sum + Number(stat[at]), 0);
  return ticks * TICK_MS;
}

/** Starts measuring CPU time. @returns a function that returns the user and system time since then in milliseconds. */
export function cpuMeter(pids) {
  const sum = () => pids.reduce((total, pid) => total + cpuMs(pid), 0);
  const before = sum();
  return () => sum() - before;
}

/**
 * Private memory of this process in bytes. Memory that is shared with others, such as the program's text, does not
 * count.
 */
export function privateBytes(pid) {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  return [...text.matchAll(/^Private_(?:Clean|Dirty):\s+(\d+) kB/gm)].reduce(
    (sum, [, kib]) => sum + Number(kib) * 1024,
    0,
  );
}

export const residentBytes = (pid) =>
  Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]) * PAGE;

/** The fields after the command's name, which may contain blanks: `[0]` is the state. */
function statOf(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return undefined;
  }
}
