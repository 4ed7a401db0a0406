import { readdirSync, readFileSync } from 'node:fs';

/** The processes of one launch, as far as this supervisor can see them. */
export interface ProcessTree {
  pids(): number[];
}

function childrenOf(pid: number): number[] {
  try {
    return readdirSync(`/proc/${pid}/task`).flatMap((task) =>
      readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8')
        .split(' ')
        .filter(Boolean)
        .map(Number),
    );
  } catch {
    return [];
  }
}

/** A process and all its descendants. Complete for the init of a pid namespace: orphans stay below it. */
export function descendants(root: number): number[] {
  const found = root > 1 ? [root] : [];
  for (let i = 0; i < found.length; i += 1) found.push(...childrenOf(found[i] ?? 0));
  return found;
}

function allPids(): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

/** All processes of a kernel user: that user is this sandbox and nothing else. Zombies are dead and do not count. */
export function processesOfUser(uid: number): number[] {
  return allPids().filter((pid) => {
    try {
      const status = readFileSync(`/proc/${pid}/status`, 'latin1');
      const [, real, effective] = /^Uid:\s+(\d+)\s+(\d+)/m.exec(status) ?? [];
      return !/^State:\s+[ZX]/m.test(status) && [real, effective].includes(String(uid));
    } catch {
      return false;
    }
  });
}

/**
 * Descendants of a process, if one is given, and whatever else carries the launch's mark in its environment. The best there is without namespaces and users: a process that wipes its environment and detaches itself
 * is missed.
 */
export function markedProcesses(root: number | null, mark: string): number[] {
  const found = new Set(root === null ? [] : descendants(root));
  for (const pid of allPids()) {
    try {
      if (readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(mark)) found.add(pid);
    } catch {
      // Another user's, or gone.
    }
  }
  found.delete(process.pid);
  return [...found];
}

/**
 * Sends a signal to each; those that are gone are fine. Numbers that are not a process (0 and below mean whole groups to
 * the kernel, -1 everything on the machine), init and this process itself are never signalled.
 */
export function signalAll(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    if (!Number.isSafeInteger(pid) || pid <= 1 || pid === process.pid) continue;
    try {
      process.kill(pid, signal);
    } catch {
      // Gone.
    }
  }
}
