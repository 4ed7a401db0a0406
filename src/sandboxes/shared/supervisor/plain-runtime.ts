import { spawn } from 'node:child_process';
import type { PlainStage, LaunchRequest } from '../launch/launch-request.js';
import { limitsScript } from './limits-script.js';
import { killAll, MARK, processesOfLaunch, signalAll } from './process-tree.js';
import { type RuntimeProcess, type RuntimeStdio } from './runtime-process.js';
import { announcement, exitCodeOf } from './strict-runtime.js';

/** The runtime as a plain process: its own user where the service is root, limits, and a clean environment. */
export function startPlain(
  request: LaunchRequest,
  stage: PlainStage,
  stdio: RuntimeStdio,
): RuntimeProcess {
  const { uid } = stage;
  const script = limitsScript(request.limits, stage.limitProcesses);
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
