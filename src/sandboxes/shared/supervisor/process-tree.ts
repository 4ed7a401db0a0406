import { spawnSync } from 'node:child_process';
import { closeSync, openSync, readdirSync, readFileSync, readSync } from 'node:fs';
import { SYSTEM_PATH } from '../layout.js';

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

/** Holds the lines of a status that matter: there may be hundreds of processes to look at. */
const head = Buffer.allocUnsafeSlow(512);

function statusHead(pid: number): string {
  const fd = openSync(`/proc/${pid}/status`, 'r');
  try {
    return head.toString('latin1', 0, readSync(fd, head, 0, head.length, 0));
  } finally {
    closeSync(fd);
  }
}

/** All processes of a kernel user: that user is this sandbox and nothing else. Zombies are dead and do not count. */
export function processesOfUser(uid: number): number[] {
  return allPids().filter((pid) => {
    try {
      const status = statusHead(pid);
      const [, real, effective] = /^Uid:\s+(\d+)\s+(\d+)/m.exec(status) ?? [];
      return [real, effective].includes(String(uid)) && !/^State:\s+[ZX]/m.test(status);
    } catch {
      return false;
    }
  });
}

/** The value of a variable in a process's first environment, or `null`. */
function variableOf(pid: number, name: string): string | null {
  try {
    const entries = readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0');
    return entries.find((entry) => entry.startsWith(`${name}=`))?.slice(name.length + 1) ?? null;
  } catch {
    return null;
  }
}

/**
 * The mark of a process, or of its nearest ancestor that has one: a program that is just being started shows no
 * environment for a moment, and belongs to whoever starts it.
 */
function markOf(pid: number): string | null {
  for (let at = pid; at > 1; at = parentOf(at)) {
    const mark = variableOf(at, MARK);
    if (mark !== null) return mark;
  }
  return null;
}

function parentOf(pid: number): number {
  try {
    // The name in brackets may itself hold spaces and brackets; what counts comes after it.
    const [, parent] = (readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ').at(-1) ?? '').split(
      ' ',
    );
    return Number(parent);
  } catch {
    return 0;
  }
}

/** The variable by which the processes of a launch are found again where there are no namespaces. */
export const MARK = 'SANDBOX_LAUNCH';

/**
 * The processes of a launch that runs without namespaces. With a kernel user of its own: all of that user, except those
 * marked for another launch. Without: the descendants of `root`, and whatever carries the mark; a process that wipes its
 * environment and detaches itself is missed.
 */
export function processesOfLaunch(launch: {
  mark: string;
  uid: number | null;
  root: number | null;
}): number[] {
  const { mark, uid, root } = launch;
  if (uid !== null) {
    return processesOfUser(uid).filter((pid) => [mark, null].includes(markOf(pid)));
  }
  const found = new Set(root === null ? [] : descendants(root));
  for (const pid of allPids()) if (variableOf(pid, MARK) === mark) found.add(pid);
  found.delete(process.pid);
  return [...found];
}

/** Ends whatever `list` finds: stops it first, so that nothing forks between being listed and being killed. */
export function killAll(list: () => number[]): void {
  const known = new Set<number>();
  for (let round = 0; round < 50; round += 1) {
    const fresh = list().filter((pid) => !known.has(pid));
    if (fresh.length === 0) break;
    signalAll(fresh, 'SIGSTOP');
    for (const pid of fresh) known.add(pid);
  }
  signalAll([...known], 'SIGKILL');
}

/** Ends every process of a sandbox's kernel user in one system call, so that no fork escapes. */
export function killUser(uid: number): void {
  // This ends all that the user runs, so it must be a sandbox's: never root, never the service's own.
  if (!Number.isSafeInteger(uid) || uid < 1000 || uid === process.getuid?.()) {
    throw new Error(`not the kernel user of a sandbox: ${uid}`);
  }
  const id = String(uid);
  spawnSync(
    'setpriv',
    ['--reuid', id, '--regid', id, '--clear-groups', 'sh', '-c', 'kill -KILL -1'],
    { env: { PATH: SYSTEM_PATH } },
  );
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
