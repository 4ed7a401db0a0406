import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { SandboxError } from './sandbox-error.js';
import {
  isProcessAlive,
  isStopped,
  type ProcessIdentity,
  descendants,
  killAll,
  killUser,
  processesOfUser,
  signalAll,
} from './processes.js';
import { type LaunchFolder, LaunchFolders } from './launch-folder.js';

/** A supervisor gives its runtime 600 ms to end by itself; one that takes much longer is stuck. */
const SUPERVISOR_MS = 1400;
const POLL_MS = 10;
/** How long a supervisor may stay stopped. */
const STOPPED_MS = 1000;
/** How often a user's processes are killed before they count as unkillable. */
const SWEEPS = 100;
/** How often it first checks whether the processes end by themselves, as they do once their supervisor is gone. */
const LOOKS = 3;

/** The state of a process after it was told to end; `unknown`: the system did not say. */
type Ended = 'dead' | 'alive' | 'unknown';

function signal(process_: ProcessIdentity, name: NodeJS.Signals): void {
  try {
    if (isProcessAlive(process_)) process.kill(process_.pid, name);
  } catch {
    // It is gone or its state is unknown. The caller that waits for its end finds out.
  }
}

function stateOf(process_: ProcessIdentity): Ended {
  try {
    return isProcessAlive(process_) ? 'alive' : 'dead';
  } catch {
    return 'unknown';
  }
}

async function waitForEnd(supervisor: ProcessIdentity, milliseconds: number): Promise<Ended> {
  const until = Date.now() + milliseconds;
  for (;;) {
    const state = stateOf(supervisor);
    if (state === 'dead' || Date.now() > until) return state;
    await delay(POLL_MS);
  }
}

function requireKnown(states: readonly Ended[]): void {
  if (!states.includes('unknown')) return;
  throw new SandboxError('unavailable', 'it is unknown whether a launch has ended');
}

/**
 * Ends a running launch, or prevents its start. Resolves when its supervisor is gone.
 * @throws SandboxError `unavailable`, or the system's error, if the state is unknown
 */
export async function endLaunch(folder: LaunchFolder): Promise<void> {
  if (folder.claimStart({ abandoned: true })) return;
  const started = folder.readStart();
  if (started === null || 'abandoned' in started) return;
  const { supervisor } = started;
  signal(supervisor, 'SIGTERM');
  if ((await waitForEnd(supervisor, SUPERVISOR_MS)) === 'dead') return;
  // Everything in the sandbox dies with the supervisor, and only the record of the exit is missing.
  signal(supervisor, 'SIGKILL');
  requireKnown([await waitForEnd(supervisor, SUPERVISOR_MS)]);
  folder.recordExit({ reason: 'killed', exitCode: null });
}

/**
 * Kills a supervisor that stays stopped, because it would not enforce any limits. A setup script that is root in its
 * container can stop its supervisor.
 * @returns the timer, to be cleared when nobody waits for the launch any more
 */
export function killWhenStopped(folder: LaunchFolder): NodeJS.Timeout {
  let wasStopped = false;
  return setInterval(() => {
    const started = folder.readStart();
    if (started === null || !('supervisor' in started)) return;
    const stopped = isStopped(started.supervisor);
    if (stopped && wasStopped) signalAll([started.supervisor.pid], 'SIGKILL');
    wasStopped = stopped;
  }, STOPPED_MS).unref();
}

/** Ends all launches of a sandbox in parallel. @throws as {@link endLaunch} */
export async function killSupervisors(launches: LaunchFolders): Promise<void> {
  const supervisors = await supervisorsOf(launches);
  for (const supervisor of supervisors) signal(supervisor, 'SIGKILL');
  requireKnown(
    await Promise.all(supervisors.map((supervisor) => waitForEnd(supervisor, SUPERVISOR_MS))),
  );
}

/**
 * Ends every process of a sandbox's kernel user, and waits until there is none.
 * @param stillIts called before each kill, to check that the user still belongs to the sandbox: another process may
 *   have destroyed the sandbox, and the user may belong to a new one.
 * @throws SandboxError `unavailable` if processes are left; the system's error if that is unknown
 */
export async function sweepUser(
  uid: number,
  stillIts: () => Promise<boolean>,
  sweeps = SWEEPS,
): Promise<void> {
  let cause: unknown;
  for (let attempt = -LOOKS; attempt < sweeps; attempt += 1) {
    if (processesOfUser(uid).length === 0 || !(await stillIts())) return;
    try {
      // Killing them needs a process of that user, and starting it blocks this process.
      if (attempt >= 0) killUser(uid);
    } catch (error) {
      cause = error;
    }
    await delay(POLL_MS);
  }
  // Otherwise the next sandbox with this user would share it with these processes.
  if (processesOfUser(uid).length === 0) return;
  throw new SandboxError('unavailable', 'processes of the sandbox cannot be ended', { cause });
}

/**
 * Ends the remaining processes of a launch without its supervisor. Only launches without namespaces leave any.
 * Processes below the supervisor of another launch of the sandbox belong to that launch; all others are killed.
 */
export async function sweepLaunch(folder: LaunchFolder, uid: number | null): Promise<void> {
  if (uid === null) return;
  const siblings = new LaunchFolders(dirname(folder.path));
  const others = (await supervisorsOf(siblings)).filter(({ pid }) => pid !== supervisorPid(folder));
  const theirs = () => others.filter(isProcessAlive).flatMap(({ pid }) => descendants(pid));
  killAll(() => {
    // Before and after: another launch may start a process meanwhile, and one that loses its parent gets another.
    const before = theirs();
    const all = processesOfUser(uid);
    const spared = new Set([...before, ...theirs()]);
    return all.filter((pid) => !spared.has(pid));
  });
}

function supervisorPid(folder: LaunchFolder): number | null {
  const started = folder.readStart();
  return started !== null && 'supervisor' in started ? started.supervisor.pid : null;
}

async function supervisorsOf(launches: LaunchFolders): Promise<ProcessIdentity[]> {
  return (await launches.launchIds()).flatMap((id) => {
    const started = launches.launch(id).readStart();
    return started !== null && 'supervisor' in started ? [started.supervisor] : [];
  });
}
