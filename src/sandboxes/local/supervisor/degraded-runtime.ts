import { spawn } from 'node:child_process';
import type { DegradedStage, LaunchRequest } from '../launch-request.js';
import { limitsScript } from './limits-script.js';
import { killAll, MARK, processesOfLaunch, signalAll } from './process-tree.js';
import { type RuntimeProcess, type RuntimeStdio } from './runtime-process.js';
import { announcement, exitCodeOf } from './strict-runtime.js';

/** The runtime as a plain process: its own user where the service is root, limits, and a clean environment. */
export function startDegraded(
  request: LaunchRequest,
  stage: DegradedStage,
  stdio: RuntimeStdio,
): RuntimeProcess {
  const { uid } = stage;
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
  const pids = (): number[] => processesOfLaunch({ mark: request.folder, uid, root });
  return {
    started: announcement(child, exited),
    exited,
    pids,
    terminate: () => signalAll(pids(), 'SIGTERM'),
    destroy: () => killAll(pids),
  };
}
