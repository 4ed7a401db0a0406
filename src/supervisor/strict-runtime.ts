import { spawn, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { packageRoot } from '../common/package-root.js';
import { joinGroups, confine, confineProgram } from './confine.js';
import {
  childPipe,
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
import type { LaunchRequest, StrictStage } from './launch-request.js';
import { adoptListeners, listenCommand } from './relay/adoption.js';
import { RelayThread } from './relay/relay-thread.js';
import { descendants, signalAll } from './processes.js';

const ADOPTION_TIMEOUT_MS = 10_000;
const ARGUMENTS_FD = 4;
const STATUS_FD = 6;
const GATE_FD = 8;

/**
 * Runs as root of the outer namespaces. The relay's listeners are made in parallel with bubblewrap, which prepares the
 * sandbox and waits at the gate. The sandbox inherits only descriptors 0, 1 and 2, so it cannot use the channel to the
 * supervisor.
 */
const STAGE = `
"$1" "$2" </dev/null >/dev/null ${[4, 5, 6, 7, 8, 9].map((fd) => `${fd}>&-`).join(' ')} &
shift 2
exec "$@" 3>&-
`;
const BWRAP_DESCRIPTORS = {
  '--args': ARGUMENTS_FD,
  '--seccomp': SECCOMP_FD,
  '--json-status-fd': STATUS_FD,
  '--block-fd': GATE_FD,
};

/** The runtime in its own namespaces. This process serves its network until the process ends. */
export function startStrict(
  request: LaunchRequest,
  stage: StrictStage,
  output: RuntimeOutput,
): RuntimeProcess {
  const [bwrap] = stage.nest;
  // A collecting process is above all others: it ends them when this process ends, however early. Killing only bubblewrap
  // is not enough: its fork waits for bubblewrap before it sets its parent-death signal, so it would wait forever.
  const confining = confineProgram(packageRoot());
  const [program = '', ...collecting] = confine(confining, { reap: true });
  const child = spawn(
    program,
    [
      ...collecting,
      ...stage.nest,
      '--',
      '/bin/sh',
      '-c',
      STAGE,
      'sh',
      ...listenCommand(stage.listen, stage.listeners),
      // The agent can change what bubblewrap's process in the sandbox does, so that one has the same limits. The kernel
      // counts processes per user namespace, so their limit must be set in the outer one.
      ...confine(confining, { limits: request.limits, limitProcesses: true }),
      bwrap,
      ...Object.entries(BWRAP_DESCRIPTORS).flatMap(([option, fd]) => [option, String(fd)]),
      '--',
      ...confine(stage.confine, {
        close: true,
        sealInput: true,
        chdir: request.cwd,
        environment: ENVIRONMENT_FD,
        announce: RUNNING_FD,
      }),
      ...request.command,
    ],
    {
      stdio: ['pipe', ...output, 'ipc', 'pipe', 'pipe', 'pipe', 'pipe', 'pipe', 'pipe'],
      cwd: '/',
      detached: true,
    },
  );
  feedChild(child, ARGUMENTS_FD, [...stage.sandbox, '--clearenv'].join('\0'));
  feedChild(child, SECCOMP_FD, Buffer.from(request.seccomp, 'base64'));
  feedChild(child, 0, request.stdin);

  let init: number | null = null;
  const prepared = new Promise<void>((resolve) => {
    createInterface({ input: childPipe(child, STATUS_FD) }).on('line', (line) => {
      init ??= (JSON.parse(line) as { 'child-pid'?: number })['child-pid'] ?? null;
      if (init !== null) resolve();
    });
  });
  const pids = (): number[] => (init === null ? [] : descendants(init));

  const exited = exitCodeOf(child);
  return {
    started: Promise.all([
      // Both take some time, and no code of the tenant runs before both are done. The gate also opens if this process
      // ends; but without the whole environment no command is executed.
      Promise.all([
        serveNetwork(child, stage),
        prepared.then(() => joinGroups(request.cgroups, pids)),
      ]).then(() => {
        feedChild(child, GATE_FD, '.');
        feedChild(child, ENVIRONMENT_FD, environmentOf(request));
      }),
      announcement(child, exited),
    ]).then(() => undefined),
    exited,
    root: () => (init === null ? '' : `/proc/${init}/root`),
    pids,
    terminate: () =>
      signalAll(
        asFarAsKnown(pids).filter((pid) => pid !== init),
        'SIGTERM',
      ),
    destroy: () => {
      // Killing the sandbox's init ends everything in the sandbox.
      if (init !== null) signalAll([init], 'SIGKILL');
      endCollecting(child);
    },
  };
}

/**
 * Serves the sandbox's network on a separate thread until this process ends, so that a busy relay cannot delay the
 * enforcement of limits. The thread starts while the namespaces and the listeners are made; their messages wait for it.
 */
async function serveNetwork(child: ChildProcess, stage: StrictStage): Promise<void> {
  const thread = new RelayThread({
    policy: stage.network,
    gateways: stage.gateways,
    privateHosts: stage.privateHosts,
    gateway: stage.gateway,
  });
  await thread.serve(await adoptListeners(child, stage.listeners, ADOPTION_TIMEOUT_MS));
}
