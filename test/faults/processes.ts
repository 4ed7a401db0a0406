import { readFileSync } from 'node:fs';
import { names, processesWithin } from '../support/sandbox-processes.js';

/** A range of kernel users. */
export interface Users {
  first: number;
  count: number;
}

/** Everything that runs in sandboxes, supervisors included: by user, or by path where there is one user for all. */
export function processesOf(sandboxes: string, users: Users | undefined): number[] {
  if (!users) return processesWithin(sandboxes);
  return names('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      const uid = Number(/^Uid:\s+(\d+)/m.exec(statusOf(pid))?.[1] ?? -1);
      return uid >= users.first && uid < users.first + users.count;
    });
}

function statusOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/status`, 'latin1');
  } catch {
    return '';
  }
}
