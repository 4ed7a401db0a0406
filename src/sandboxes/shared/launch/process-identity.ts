import { readFileSync } from 'node:fs';

/** Names one process for good: a pid alone is reused, and means nothing after a reboot. */
export interface ProcessIdentity {
  pid: number;
  /** Clock ticks between boot and the start of the process, as the kernel prints them. */
  startTime: string;
  bootId: string;
}

let bootId: string | undefined;

function currentBootId(): string {
  bootId ??= readBootId();
  return bootId;
}

function readBootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    // gVisor has none; there the time of the boot has to do, which is that of the container's start.
    return /^btime \d+$/m.exec(readFileSync('/proc/stat', 'utf8'))?.[0] ?? '';
  }
}

/** State letter and start time of a process, or `null` if there is none. */
function readStat(pid: number): { state: string; startTime: string } | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The second field is the program's name in parentheses and may itself hold blanks and parentheses.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { state: fields[0] ?? '', startTime: fields[19] ?? '' };
  } catch {
    return null;
  }
}

/** The identity of a running process, or `null` if it is gone. */
export function identifyProcess(pid: number): ProcessIdentity | null {
  const stat = readStat(pid);
  return stat === null ? null : { pid, startTime: stat.startTime, bootId: currentBootId() };
}

/** Is exactly this process still running? A zombie counts as dead: it does nothing any more. */
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
