import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, constants, openSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { childPipe, feedChild, killGroup } from '../../shared/child-pipes.js';
import type { AbortRequest, SpawnAnswer, SpawnNotice, SpawnRequest } from './messages.js';

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
      else start(message);
    });
  }
});
// It ends with the service, however that ends, and not before: signals to their whole group are the service's.
process.on('disconnect', () => process.exit(0));
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);

function answer(said: SpawnAnswer): void {
  process.send?.(said);
}

function start(request: SpawnRequest): void {
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
      stdio: ['pipe', 'pipe', logFd ?? 'pipe', ...descriptors.map(() => 'pipe' as const)],
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
  for (const [index, data] of [stdin, ...descriptors].entries()) {
    feedChild(child, index === 0 ? 0 : index + 2, Buffer.from(data));
  }
  if (until === 'line') {
    const lines = createInterface({ input: childPipe(child, 1) });
    lines.once('line', (line) => settle(null, line));
    lines.once('close', () => settle(null, ''));
    lines.once('line', () => childPipe(child, 1).destroy());
    return;
  }
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', (text: string) => {
      output = (output + text).slice(-KEPT_OUTPUT);
    });
  }
  child.once('close', (code) => settle(code ?? 137, output.trim()));
}
