import { PassThrough, Writable } from 'node:stream';
import { Readable } from 'node:stream';
import type { FileServer } from '../files/file-call.js';
import { LaunchFolders } from '../launch-folder.js';
import { startMain } from '../place-supervisor.js';
import type { CallConnection } from '../protocol/call-client.js';
import type { CallHandler } from '../protocol/call-server.js';
import type { Item } from '../protocol/frames.js';
import type { ServedPlace } from '../served-place.js';
import { prepareLaunchFolder } from '../start.js';
import { type AgentTask, FolderSupervisor } from '../supervisor.js';
import { SandboxError } from '../sandbox-error.js';
import type { PipedProgram } from './shim-calls.js';

/** The maximum output of a short program in an error message. Bytes. */
const OUTPUT_BYTES = 4096;
const END_MS = 10_000;

/** The supervisor of a pod, whose shim starts everything that needs the agent's files, processes or rights. */
export function shimSupervisor(
  place: Pick<ServedPlace, 'launches' | 'confine' | 'main'>,
  shim: CallConnection,
): FolderSupervisor {
  return new FolderSupervisor({
    folders: new LaunchFolders(place.launches),
    prepare: (folder) => prepareLaunchFolder(folder, null),
    start: (folder, request) => startMain(place, folder, request),
    clearUp: async (launchId, unsupervised) => {
      if (!unsupervised) return;
      const signal = AbortSignal.timeout(END_MS);
      await last(shim.call({ name: 'end', parameters: { launchId }, signal }));
    },
    asAgent: (task, signal) => asAgent(shim, task, signal),
    openFiles: async () => openFiles(shim),
    room: async () => {
      const signal = AbortSignal.timeout(END_MS);
      const item = await last(shim.call({ name: 'room', parameters: {}, signal }));
      const room = item?.header['room'];
      if (!Number.isSafeInteger(room) || Number(room) < 0) {
        throw new SandboxError('failed', 'the use of the disk is unknown');
      }
      return Number(room);
    },
  });
}

/**
 * Passes the calls of the supervisors of launches (`main.ts`), which have no connection to the shim, on to it.
 * @param counted how many run, and whether a launch other than a script ever ran
 */
export function passedOn(
  shim: CallConnection,
  counted: { running: number; hadTurn: boolean },
): Record<string, CallHandler> {
  const pass = (name: string): CallHandler =>
    async function* ({ parameters, input, signal }) {
      counted.running += 1;
      counted.hadTurn ||= parameters['isTurn'] === true;
      try {
        yield* shim.call({ name, parameters, input, signal });
      } finally {
        counted.running -= 1;
      }
    };
  return { run: pass('run'), signal: pass('signal') };
}

async function last(items: AsyncIterable<Item>): Promise<Item | undefined> {
  let found: Item | undefined;
  for await (const item of items) found = item;
  return found;
}

async function asAgent(
  shim: CallConnection,
  { task, operands, environment, stdin }: AgentTask,
  signal: AbortSignal,
): Promise<{ exitCode: number; output: string }> {
  const parameters = { how: task, operands, environment } satisfies PipedProgram;
  let exitCode = 1;
  let output = Buffer.alloc(0);
  for await (const { header, bytes } of shim.call({
    name: 'pipe',
    parameters,
    input: stdin,
    signal,
  })) {
    if (header['kind'] === 'exit') exitCode = Number(header['code']);
    else output = Buffer.concat([output, bytes]).subarray(-OUTPUT_BYTES);
  }
  return { exitCode, output: output.toString('utf8').trim() };
}

/** The program that serves one access to files, in the agent's container. */
function openFiles(shim: CallConnection): FileServer {
  const stop = new AbortController();
  const { signal } = stop;
  const input = new PassThrough();
  const parameters = {
    how: { files: true },
    operands: [],
    environment: {},
  } satisfies PipedProgram;
  const stdin = new Writable({
    write: (data: Buffer, _encoding, done) => {
      if (input.write(data)) done();
      else input.once('drain', () => done());
    },
    final: (done) => {
      input.end();
      done();
    },
    destroy: (error, done) => {
      input.end();
      done(error);
    },
  });
  const output = async function* (): AsyncGenerator<Buffer, void, undefined> {
    const items = shim.call({ name: 'pipe', parameters, input, signal });
    for await (const { header, bytes } of items) {
      if (header['kind'] === 'stdout') yield bytes;
    }
  };
  const stdout = Readable.from(output(), { objectMode: false });
  stdout.once('close', () => stop.abort());
  stdout.on('error', () => undefined);
  return { stdin, stdout };
}
