import { readFileSync, closeSync, openSync, readdirSync, readSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { becomeUser, confineProgram } from './confine.js';
import { packageRoot } from '../common/package-root.js';

/**
 * Identifies one process uniquely. A pid alone is not enough, because it is reused and means nothing after a reboot.
 */
export interface ProcessIdentity {
  pid: number;
  /** Clock ticks between boot and the start of the process, as the kernel prints them. */
  startTime: string;
  bootId: string;
}

/** The exit code of `confine` if a step failed. */
const NOT_CONFINED = 125;

let bootId: string | undefined;

function currentBootId(): string {
  bootId ??= readBootId();
  return bootId;
}

function readBootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch (error) {
    if (!isMissing(error)) throw error;
    // gVisor has no boot id. Uses the boot time instead, which there is the container's start.
    return /^btime \d+$/m.exec(readFileSync('/proc/stat', 'utf8'))?.[0] ?? '';
  }
}

/** Whether the error means that there is no such process. */
function isMissing(error: unknown): boolean {
  return ['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '');
}

/**
 * State letter and start time of a process, or `null` if there is none.
 * @throws the system's error if it is unknown
 */
function readStat(pid: number): { state: string; startTime: string } | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The second field is the program's name in parentheses, which may contain blanks and parentheses.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { state: fields[0] ?? '', startTime: fields[19] ?? '' };
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

/** The identity of a running process, or `null` if it is gone. @throws the system's error if it is unknown */
export function identifyProcess(pid: number): ProcessIdentity | null {
  const stat = readStat(pid);
  return stat === null ? null : { pid, startTime: stat.startTime, bootId: currentBootId() };
}

/**
 * Whether exactly this process is still running. A zombie counts as dead, because it does nothing any more.
 * @throws the system's error if it is unknown, such as EMFILE; the caller must not assume either state
 */
export function isProcessAlive(identity: ProcessIdentity): boolean {
  const stat = readStat(identity.pid);
  return (
    stat !== null &&
    stat.state !== 'Z' &&
    stat.state !== 'X' &&
    stat.startTime === identity.startTime &&
    identity.bootId === currentBootId()
  );
}

/** Whether exactly this process is stopped by a signal or a tracer, and so does nothing until it is continued. */
export function isStopped({ pid, startTime }: ProcessIdentity): boolean {
  const stat = readStat(pid);
  return stat?.startTime === startTime && ['T', 't'].includes(stat.state);
}

/** The result of `read`, or `otherwise` if the process is gone. @throws the system's error if it is unknown */
export function unlessGone<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch (error) {
    if (isMissing(error)) return otherwise;
    throw error;
  }
}

function childrenOf(pid: number): number[] {
  return unlessGone(() => readdirSync(`/proc/${pid}/task`), []).flatMap((task) =>
    unlessGone(() => readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8'), '')
      .split(' ')
      .filter(Boolean)
      .map(Number),
  );
}

/**
 * A process and all its descendants. Complete for the init of a pid namespace, because orphans stay below it.
 * @throws the system's error if it is unknown
 */
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

/** The relevant lines of a status. The others are skipped because there may be hundreds of processes to scan. */
const head = Buffer.allocUnsafeSlow(512);

function statusHead(pid: number): string {
  const fd = openSync(`/proc/${pid}/status`, 'r');
  try {
    return head.toString('latin1', 0, readSync(fd, head, 0, head.length, 0));
  } finally {
    closeSync(fd);
  }
}

/**
 * All processes of a kernel user, which belongs to one sandbox only. Zombies are dead and do not count.
 * @throws the system's error if it is unknown
 */
export function processesOfUser(uid: number): number[] {
  return allPids().filter((pid) => {
    const status = unlessGone(() => statusHead(pid), '');
    const [, real, effective] = /^Uid:\s+(\d+)\s+(\d+)/m.exec(status) ?? [];
    return [real, effective].includes(String(uid)) && !/^State:\s+[ZX]/m.test(status);
  });
}

/**
 * Kills the processes that `list` finds. Stops them first, so that none forks between being listed and being killed.
 */
export function killAll(list: () => number[]): void {
  const known = new Set<number>();
  try {
    for (let round = 0; round < 50; round += 1) {
      const fresh = list().filter((pid) => !known.has(pid));
      if (fresh.length === 0) break;
      signalAll(fresh, 'SIGSTOP');
      for (const pid of fresh) known.add(pid);
    }
  } finally {
    signalAll([...known], 'SIGKILL');
  }
}

/**
 * Kills every process of a sandbox's kernel user in one system call, so that no fork escapes.
 * @throws Error if no command could be run as that user
 */
export function killUser(uid: number): void {
  // This kills all processes of the user, so the user must be a sandbox's: never root or the service's own.
  if (!Number.isSafeInteger(uid) || uid < 1000 || uid === process.getuid?.()) {
    throw new Error(`not the kernel user of a sandbox: ${uid}`);
  }
  const [program = '', ...args] = becomeUser(confineProgram(packageRoot()), uid);
  const kill = [...args, '/bin/sh', '-c', 'kill -KILL -1'];
  const { error, status, stderr } = spawnSync(program, kill, { env: {}, encoding: 'utf8' });
  if (error !== undefined) throw error;
  // The shell also fails if there is no process to kill.
  if (status === NOT_CONFINED) throw new Error(stderr.trim());
}

/**
 * Sends a signal to each process and ignores those that are gone. Never signals init, this process, or numbers that are
 * not a process (for the kernel, 0 and below mean groups, and -1 everything on the machine).
 */
export function signalAll(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    if (!Number.isSafeInteger(pid) || pid <= 1 || pid === process.pid) continue;
    try {
      process.kill(pid, signal);
    } catch {
      // The process is gone.
    }
  }
}
