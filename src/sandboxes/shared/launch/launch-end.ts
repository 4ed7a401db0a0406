import { setTimeout as delay } from 'node:timers/promises';
import { isProcessAlive, type ProcessIdentity } from './process-identity.js';
import type { LaunchFolder, LaunchFolders } from './launch-folder.js';
import {
  killAll,
  killUser,
  processesOfLaunch,
  processesOfUser,
} from '../supervisor/process-tree.js';

/** A supervisor gives its runtime 600 ms to end by itself; one that takes much longer is stuck. */
const SUPERVISOR_MS = 1400;
const POLL_MS = 10;

function signal(process_: ProcessIdentity, name: NodeJS.Signals): void {
  try {
    if (isProcessAlive(process_)) process.kill(process_.pid, name);
  } catch {
    // Gone.
  }
}

async function waitForEnd(supervisor: ProcessIdentity, milliseconds: number): Promise<boolean> {
  const until = Date.now() + milliseconds;
  while (isProcessAlive(supervisor)) {
    if (Date.now() > until) return false;
    await delay(POLL_MS);
  }
  return true;
}

/** Ends a launch that runs, or sees to it that it never will. Resolves when its supervisor is gone. */
export async function endLaunch(folder: LaunchFolder): Promise<void> {
  if (folder.claimStart({ abandoned: true })) return;
  const started = folder.readStart();
  if (started === null || 'abandoned' in started) return;
  const { supervisor } = started;
  signal(supervisor, 'SIGTERM');
  if (await waitForEnd(supervisor, SUPERVISOR_MS)) return;
  // Everything in the sandbox dies with it; only the record is missing then.
  signal(supervisor, 'SIGKILL');
  await waitForEnd(supervisor, SUPERVISOR_MS);
  folder.recordExit({ reason: 'killed', exitCode: null });
}

/** Ends all launches of a sandbox, at once. */
export async function killSupervisors(launches: LaunchFolders): Promise<void> {
  const supervisors = (await launches.launchIds()).flatMap((id) => {
    const started = launches.launch(id).readStart();
    return started !== null && 'supervisor' in started ? [started.supervisor] : [];
  });
  for (const supervisor of supervisors) signal(supervisor, 'SIGKILL');
  await Promise.all(supervisors.map((supervisor) => waitForEnd(supervisor, SUPERVISOR_MS)));
}

/**
 * Ends every process of a sandbox's kernel user, and waits until there is none.
 * @param stillIts whether the user is the sandbox's, asked before each kill: another process may have destroyed the
 *   sandbox already, and the user may be another one's.
 */
export async function sweepUser(uid: number, stillIts: () => Promise<boolean>): Promise<void> {
  for (let attempt = 0; attempt < 100 && processesOfUser(uid).length > 0; attempt += 1) {
    if (!(await stillIts())) return;
    killUser(uid);
    await delay(POLL_MS);
  }
}

/** Ends what is left of a launch without its supervisor: only without namespaces is there anything. */
export function sweepLaunch(folder: LaunchFolder, uid: number | null): void {
  killAll(() => processesOfLaunch({ mark: folder.path, uid, root: null }));
}
