import { readdirSync, readFileSync } from 'node:fs';

/** A range of kernel users. */
export interface Users {
  first: number;
  count: number;
}

/** Everything that runs in sandboxes, supervisors included: by user, or by path where there is one user for all. */
export function processesOf(sandboxes: string, users: Users | undefined): number[] {
  return names('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      if (!users) return read(`/proc/${pid}/cmdline`).includes(sandboxes);
      const uid = Number(/^Uid:\s+(\d+)/m.exec(read(`/proc/${pid}/status`))?.[1] ?? -1);
      return uid >= users.first && uid < users.first + users.count;
    });
}

/** What is in a folder; nothing, when it is not there. */
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
