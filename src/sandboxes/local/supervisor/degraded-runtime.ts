import { spawn, spawnSync } from 'node:child_process';
import type { DegradedStage, LaunchRequest } from '../launch-request.js';
import { limitsScript } from './limits-script.js';
import { markedProcesses, processesOfUser, signalAll } from './process-tree.js';
import { type RuntimeProcess, type RuntimeStdio } from './runtime-process.js';
import { announcement, exitCodeOf } from './strict-runtime.js';

/** The name of the variable by which processes without a user of their own are found again. */
export const MARK = 'SANDBOX_LAUNCH';

/** Ends every process of a kernel user in one system call, so that no fork escapes. */
export function killUser(uid: number): void {
  // This ends all that the user runs, so it must be a sandbox's: never root, never the service's own.
  if (!Number.isSafeInteger(uid) || uid < 1000 || uid === process.getuid?.()) {
    throw new Error(`not the kernel user of a sandbox: ${uid}`);
  }
  const id = String(uid);
  spawnSync(
    'setpriv',
    ['--reuid', id, '--regid', id, '--clear-groups', 'sh', '-c', 'kill -KILL -1'],
    {
      env: { PATH: process.env['PATH'] },
    },
  );
}

/** Stops before it kills, so that nothing forks between being listed and being killed. */
export function killMarked(root: number | null, mark: string): void {
  const known = new Set<number>();
  for (let round = 0; round < 20; round += 1) {
    const fresh = markedProcesses(root, mark).filter((pid) => !known.has(pid));
    if (fresh.length === 0) break;
    signalAll(fresh, 'SIGSTOP');
    for (const pid of fresh) known.add(pid);
  }
  signalAll([...known], 'SIGKILL');
}

/** The runtime as a plain process: its own user where the service is root, limits, and a clean environment. */
export function startDegraded(
  request: LaunchRequest,
  stage: DegradedStage,
  stdio: RuntimeStdio,
): RuntimeProcess {
  const { uid } = stage;
  const mark = `${MARK}=${request.folder}`;
  // Processes are counted per user: without one of its own the limit would count everything the operator runs.
  const script = limitsScript(request.limits, uid !== null);
  const [program, ...rest] = [...stage.prefix, '/bin/sh', '-c', script, 'sh', ...request.command];
  const child = spawn(program ?? '/bin/sh', rest, {
    stdio: [...stdio, 'ignore', 'ignore', 'ignore', 'ignore', 'pipe'],
    cwd: request.cwd,
    env: { ...request.environment, [MARK]: request.folder },
    detached: true,
  });
  const root = child.pid ?? null;
  const exited = exitCodeOf(child);
  const pids = (): number[] => (uid === null ? markedProcesses(root, mark) : processesOfUser(uid));
  return {
    started: announcement(child, exited),
    exited,
    pids,
    terminate: () => signalAll(pids(), 'SIGTERM'),
    destroy: () => {
      if (uid === null) killMarked(root, mark);
      else killUser(uid);
    },
  };
}
