import { readdirSync, readFileSync } from 'node:fs';

const TICK_MS = 10;
const PAGE = 4096;

/** The process and all its descendants. */
export function tree(pid) {
  const children = new Map();
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const stat = statOf(entry);
    if (!stat) continue;
    const parent = Number(stat[1]);
    children.set(parent, [...(children.get(parent) ?? []), Number(entry)]);
  }
  const all = [pid];
  for (const at of all) all.push(...(children.get(at) ?? []));
  return all;
}

/** User and system time of the process, milliseconds; with `ended`, that of its ended children too. */
export function cpuMs(pid, { ended = false } = {}) {
  const stat = statOf(pid);
  if (!stat) return 0;
  const ticks = [11, 12, ...(ended ? [13, 14] : [])].reduce((sum, at) => sum + Number(stat[at]), 0);
  return ticks * TICK_MS;
}

/** @returns what the processes' user and system time grows by until the returned function is called, milliseconds. */
export function cpuMeter(pids) {
  const sum = () => pids.reduce((total, pid) => total + cpuMs(pid), 0);
  const before = sum();
  return () => sum() - before;
}

/** Memory that only this process has in use, bytes: what is shared with others, such as the program's text, is not it. */
export function privateBytes(pid) {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  return [...text.matchAll(/^Private_(?:Clean|Dirty):\s+(\d+) kB/gm)].reduce(
    (sum, [, kib]) => sum + Number(kib) * 1024,
    0,
  );
}

export const residentBytes = (pid) =>
  Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]) * PAGE;

/** The fields behind the command's name, which may hold blanks: `[0]` is the state. */
function statOf(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return undefined;
  }
}
