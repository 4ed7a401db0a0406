import { spawn } from 'node:child_process';
import {
  endCollecting,
  feedChild,
  announcement,
  ENVIRONMENT_FD,
  environmentOf,
  exitCodeOf,
  asFarAsKnown,
  RUNNING_FD,
  SECCOMP_FD,
  type RuntimeProcess,
  type RuntimeOutput,
} from './runtime-process.js';
import { confine } from './confine.js';
import type { PlainStage, LaunchRequest } from './launch-request.js';
import { descendants, killAll, signalAll } from './processes.js';

/**
 * The runtime as plain processes below a collecting process: even detached processes stay below it and end with it. In
 * case that one is killed, this process also adopts orphans (`confine --subreaper`).
 * @param below whose descendants belong to the runtime: this process's, or only the collecting process's, if this
 *   process has other children
 */
export function startPlain(
  request: LaunchRequest,
  stage: PlainStage,
  output: RuntimeOutput,
  below: 'process' | 'child' = 'process',
): RuntimeProcess {
  const [program = '', ...options] = confine(stage.confine, {
    cgroups: request.cgroups?.procs ?? [],
    close: true,
    reap: true,
    limits: request.limits,
    limitProcesses: stage.limitProcesses,
    binds: stage.binds ?? [],
    hidden: stage.hidden ?? [],
    containerRoot: stage.containerRoot ?? false,
    user: stage.uid,
    dropCapabilities: !stage.keepCapabilities,
    noNewPrivileges: true,
    sealInput: true,
    chdir: request.cwd,
    environment: ENVIRONMENT_FD,
    seccomp: SECCOMP_FD,
    announce: RUNNING_FD,
  });
  const child = spawn(program, [...options, ...request.command], {
    stdio: ['pipe', ...output, 'ignore', 'ignore', 'pipe', 'ignore', 'pipe', 'ignore', 'pipe'],
    cwd: '/',
    env: {},
    detached: true,
  });
  feedChild(child, 0, request.stdin);
  feedChild(child, ENVIRONMENT_FD, environmentOf(request));
  feedChild(child, SECCOMP_FD, Buffer.from(request.seccomp, 'base64'));
  const exited = exitCodeOf(child);
  const pids = (): number[] =>
    descendants(below === 'child' ? (child.pid ?? 0) : process.pid).filter(
      (pid) => pid !== process.pid && pid !== child.pid,
    );
  return {
    started: announcement(child, exited),
    exited,
    root: () => '',
    pids,
    terminate: () => signalAll(asFarAsKnown(pids), 'SIGTERM'),
    destroy: () => {
      killAll(() => asFarAsKnown(pids));
      endCollecting(child);
    },
  };
}
