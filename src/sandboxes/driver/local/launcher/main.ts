import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, constants, openSync } from 'node:fs';
import type { Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { childPipe, feedChild, killGroup } from '../../../../supervisor/runtime-process.js';
import { OutputTail } from '../../../../supervisor/output-tail.js';
import type {
  AbortRequest,
  SpawnAnswer,
  SpawnConnection,
  SpawnNotice,
  SpawnRequest,
} from './messages.js';
import { socketPair } from './socket-pair.js';

const KEPT_OUTPUT = 4096;
const LOG_FLAGS =
  constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW;

const waitedFor = new Map<number, ChildProcess>();
/** Requests that have not been begun; `true` for one that is not wanted any more. */
const toBegin = new Map<number, boolean>();

process.on('message', (message: SpawnRequest | AbortRequest) => {
  if ('abort' in message) {
    const child = waitedFor.get(message.abort);
    if (child) killGroup(child);
    else if (toBegin.has(message.abort)) toBegin.set(message.abort, true);
  } else {
    const notice: SpawnNotice = { begins: message.id };
    toBegin.set(message.id, false);
    process.send?.(notice, () => {
      const unwanted = toBegin.get(message.id) === true;
      toBegin.delete(message.id);
      if (unwanted) answer({ id: message.id, exitCode: null, output: '' });
      else void begin(message);
    });
  }
});
// It ends with the service, however that ends, and not before: signals to their whole group are the service's.
process.on('disconnect', () => process.exit(0));
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);

function answer(said: SpawnAnswer): void {
  process.send?.(said);
}

async function begin(request: SpawnRequest): Promise<void> {
  if (request.until !== 'connected') return start(request);
  try {
    const { near, far } = await socketPair();
    start(request, far);
    far.destroy();
    process.send?.({ connected: request.id } satisfies SpawnConnection, near);
  } catch (error) {
    answer({ id: request.id, exitCode: null, output: String(error) });
  }
}

/** @param socket the program's standard input and output */
function start(request: SpawnRequest, socket?: Socket): void {
  const { id, argv, env, cwd, stdin, descriptors, log, until } = request;
  const [program = '', ...args] = argv;
  let answered = false;
  const settle = (exitCode: number | null, output: string): void => {
    if (answered) return;
    answered = true;
    waitedFor.delete(id);
    answer({ id, exitCode, output });
  };
  let logFd: number | undefined;
  let child: ChildProcess;
  try {
    logFd = log === null ? undefined : openSync(log, LOG_FLAGS, 0o600);
    child = spawn(program, args, {
      stdio: [
        socket ?? 'pipe',
        socket ?? 'pipe',
        logFd ?? 'pipe',
        ...descriptors.map(() => 'pipe' as const),
      ],
      env: { ...env },
      cwd,
      detached: true,
    });
  } catch (error) {
    settle(null, String(error));
    return;
  } finally {
    if (logFd !== undefined) closeSync(logFd);
  }
  waitedFor.set(id, child);
  child.once('error', (error) => settle(null, String(error)));
  if (socket === undefined) feedChild(child, 0, Buffer.from(stdin));
  for (const [index, data] of descriptors.entries()) feedChild(child, index + 3, Buffer.from(data));
  if (until === 'line') {
    const lines = createInterface({ input: childPipe(child, 1) });
    lines.once('line', (line) => settle(null, line));
    lines.once('close', () => settle(null, ''));
    lines.once('line', () => childPipe(child, 1).destroy());
    return;
  }
  const output = new OutputTail(KEPT_OUTPUT);
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (data: Buffer) => output.add(data));
  }
  child.once('close', (code) => settle(code ?? 137, output.toString().trim()));
}
