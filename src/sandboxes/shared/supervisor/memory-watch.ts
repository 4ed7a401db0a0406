import { readFileSync } from 'node:fs';

const PAGE_BYTES = 4096;

/** Resident memory that is not shared with a file, in bytes; 0 for a process that is gone. */
function privateBytes(pid: number): number {
  try {
    const [, resident, shared] = readFileSync(`/proc/${pid}/statm`, 'latin1')
      .split(' ')
      .map(Number);
    return ((resident ?? 0) - (shared ?? 0)) * PAGE_BYTES;
  } catch {
    return 0;
  }
}

/** Memory that a process really holds: pages shared by n processes count one n-th. Exact and slower. */
function proportionalBytes(pid: number): number {
  try {
    const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'latin1');
    return Number(/^Pss_Anon:\s+(\d+)/m.exec(rollup)?.[1] ?? 0) * 1024;
  } catch {
    // Gone, or another user's and not ours to look at.
    return privateBytes(pid);
  }
}

const sum = (numbers: readonly number[]): number => numbers.reduce((a, b) => a + b, 0);

/**
 * Do these processes together hold more than the limit? The cheap count sees forked pages twice, so only when it
 * exceeds the limit are the pages really counted.
 */
export function exceedsMemory(pids: readonly number[], limitBytes: number): boolean {
  if (sum(pids.map(privateBytes)) <= limitBytes) return false;
  return sum(pids.map(proportionalBytes)) > limitBytes;
}
