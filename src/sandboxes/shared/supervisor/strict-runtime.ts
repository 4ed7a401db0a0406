import { spawn, type ChildProcess } from 'node:child_process';
import { constants } from 'node:os';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { childPipe, feedChild, killGroup } from '../child-pipes.js';
import type { LaunchRequest, StrictStage } from '../launch/launch-request.js';
import { recordRefusal } from '../launch/refusals.js';
import { limitsScript, RUNNING_FD } from './limits-script.js';
import { descendants, signalAll } from './process-tree.js';
import { shellExitCode, type RuntimeProcess, type RuntimeStdio } from './runtime-process.js';

const ARGUMENTS_FD = 4;
const SECCOMP_FD = 5;
const STATUS_FD = 6;
const GATE_FD = 8;

const LISTENERS = fileURLToPath(new URL('../relay/listeners.js', import.meta.url));

/**
 * Runs as root of the outer namespaces. The relay's listeners start beside bubblewrap, which prepares the sandbox
 * meanwhile and waits at the gate; neither the channel to the supervisor nor anything else but 0, 1, 2 goes further.
 */
const STAGE = `
"$1" "$2" "$3" </dev/null >/dev/null ${[4, 5, 6, 7, 8].map((fd) => `${fd}>&-`).join(' ')} &
bwrap=$4 limits=$5
shift 5
exec "$bwrap" --args ${ARGUMENTS_FD} --seccomp ${SECCOMP_FD} --json-status-fd ${STATUS_FD} --block-fd ${GATE_FD} -- \\
  /bin/sh -c "$limits" sh "$@" 3>&-
`;

function sandboxArguments(request: LaunchRequest, stage: StrictStage): string {
  const environment = Object.entries(request.environment).flatMap(([name, value]) => [
    '--setenv',
    name,
    value,
  ]);
  return [...stage.sandbox, '--clearenv', ...environment, '--chdir', request.cwd].join('\0');
}

/** The runtime in its own namespaces. Its network is served from here for as long as this process lives. */
export function startStrict(
  request: LaunchRequest,
  stage: StrictStage,
  stdio: RuntimeStdio,
): RuntimeProcess {
  const [program, ...nest] = stage.nest;
  const child = spawn(
    program,
    [
      ...nest,
      '--',
      '/bin/sh',
      '-c',
      STAGE,
      'sh',
      stage.node,
      LISTENERS,
      stage.listenerArguments,
      program,
      limitsScript(request.limits, true),
      ...request.command,
    ],
    {
      stdio: [...stdio, 'ipc', 'pipe', 'pipe', 'pipe', 'pipe', 'pipe'],
      cwd: '/',
      detached: true,
    },
  );
  feedChild(child, ARGUMENTS_FD, sandboxArguments(request, stage));
  feedChild(child, SECCOMP_FD, Buffer.from(stage.seccomp, 'base64'));

  let init: number | null = null;
  createInterface({ input: childPipe(child, STATUS_FD) }).on('line', (line) => {
    init ??= (JSON.parse(line) as { 'child-pid'?: number })['child-pid'] ?? null;
  });
  const pids = (): number[] => (init === null ? [] : descendants(init));

  const exited = exitCodeOf(child);
  return {
    started: Promise.all([
      serveNetwork(child, stage).then(() => feedChild(child, GATE_FD, '.')),
      announcement(child, exited),
    ]).then(() => undefined),
    exited,
    pids,
    terminate: () =>
      signalAll(
        pids().filter((pid) => pid !== init),
        'SIGTERM',
      ),
    destroy: () => {
      // The end of the sandbox's init is the end of everything in it; before there is one, bubblewrap itself.
      if (init !== null) signalAll([init], 'SIGKILL');
      killGroup(child);
    },
  };
}

/**
 * Serves the sandbox's network for as long as this process lives. The relay is loaded while the namespaces are made and
 * the listeners start, which take longer; should they be faster, what they send is kept for it.
 */
async function serveNetwork(child: ChildProcess, stage: StrictStage): Promise<void> {
  const early: [message: unknown, handle: unknown][] = [];
  const keep = (message: unknown, handle: unknown): void => void early.push([message, handle]);
  child.on('message', keep);
  const { Relay } = await import('../relay/relay.js');
  const relay = new Relay({
    policy: stage.network,
    gateways: stage.gateways,
    log: recordRefusal,
  });
  child.off('message', keep);
  const adopted = relay.adopt(child);
  for (const [message, handle] of early) child.emit('message', message, handle);
  await adopted;
}

export function exitCodeOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve) => {
    child.once('error', () => resolve(127));
    child.once('exit', (code, signal) =>
      resolve(shellExitCode(code, signal === null ? 0 : constants.signals[signal])),
    );
  });
}

/** Waits until the limits are set and the command is next. */
export function announcement(child: ChildProcess, exited: Promise<number>): Promise<void> {
  const pipe = childPipe(child, RUNNING_FD);
  return new Promise((resolve, reject) => {
    pipe.once('data', () => {
      resolve();
      pipe.destroy();
    });
    pipe.on('error', () => undefined);
    // Not the exit but the end of the pipe: a short command may have ended before its announcement is read.
    pipe.once('end', () => {
      exited.then(
        (code) => reject(new Error(`the sandbox could not be set up (exit code ${code})`)),
        reject,
      );
    });
  });
}
