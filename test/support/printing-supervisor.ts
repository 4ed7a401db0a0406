import { mkdir, mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { type Duplex, duplexPair } from 'node:stream';
import type { SpoolEvent } from '../../src/supervisor/calls.js';
import { LaunchFolder, LaunchFolders } from '../../src/supervisor/launch-folder.js';
import type { LaunchRequest } from '../../src/supervisor/launch-request.js';
import { identifyProcess } from '../../src/supervisor/processes.js';
import { SandboxError } from '../../src/supervisor/sandbox-error.js';
import { SpoolWriter } from '../../src/supervisor/spool-format.js';
import { FolderSupervisor } from '../../src/supervisor/supervisor.js';

export const LAUNCH = '11111111-1111-4111-8111-111111111111';
export const PIECES = ['one\n', 'größer 🚀\n', '\u0000\u0001binary', 'the last'];
export const REQUEST = { command: ['echo'], stdin: 'a prompt' } as unknown as LaunchRequest;

/** A supervisor whose launches print these pieces and end at once, without a process. @param root for its files */
export async function printingSupervisor(root: string, pieces = PIECES) {
  const folder = await mkdtemp(join(root, 'launches-'));
  const started: string[] = [];
  const supervisor = new FolderSupervisor({
    folders: new LaunchFolders(folder),
    prepare: async ({ path }) => void (await mkdir(path, { recursive: true })),
    clearUp: async () => undefined,
    openFiles: async () => {
      throw new SandboxError('failed', 'there are no files');
    },
    asAgent: async ({ operands }) => ({ exitCode: operands.length, output: 'no such folder' }),
    start: async (launch, request) => {
      const self = identifyProcess(process.pid);
      if (self !== null && launch.claimStart({ supervisor: self })) {
        started.push(request.stdin);
        const spool = new SpoolWriter(launch.spool);
        for (const piece of pieces) spool.append('stdout', Buffer.from(piece));
        spool.close();
        launch.recordExit({ reason: 'exited', exitCode: 3 });
      }
      return { ok: true };
    },
  });
  return { supervisor, started, folder: new LaunchFolder(join(folder, LAUNCH)) };
}

/** Breaks the stream of bytes from the supervisor to the worker (`down`), or back. */
export interface Fault {
  direction: 'down' | 'up';
  /** The number of bytes that pass before it. */
  at: number;
  how: 'cut' | 'truncate';
}

/** A stream of bytes to a supervisor that breaks at the given fault, and counts the bytes that passed. */
export function transport(
  serve: (connection: Duplex) => Promise<void>,
  fault?: Fault,
  pieceBytes = 1024,
) {
  const [worker, near] = duplexPair();
  const [far, supervisor] = duplexPair();
  const served = serve(supervisor).catch(() => undefined);
  // As a socket does: when one end goes, so does the other.
  for (const end of [worker, near, far, supervisor]) {
    end.once('close', () => {
      for (const other of [worker, near, far, supervisor]) other.destroy();
    });
  }
  const passed = { down: 0, up: 0 };
  const pass = (from: Duplex, to: Duplex, direction: 'down' | 'up'): void => {
    from.on('error', () => undefined);
    from.on('data', (data: Buffer) => {
      for (let at = 0; at < data.length; at += pieceBytes) {
        let piece = data.subarray(at, at + pieceBytes);
        const room = fault?.direction === direction ? fault.at - passed[direction] : Infinity;
        if (room < piece.length) piece = piece.subarray(0, Math.max(0, room));
        passed[direction] += piece.length;
        if (piece.length > 0 && to.writable) to.write(piece);
        if (room > piece.length || fault === undefined) continue;
        if (fault.how === 'truncate') to.end();
        else {
          near.destroy();
          far.destroy();
        }
        return;
      }
    });
    from.on('end', () => to.end());
  };
  pass(far, near, 'down');
  pass(near, far, 'up');
  return { connection: worker, passed, served };
}

/** What a launch has printed, and its exit if it was reported. */
export async function take(events: AsyncIterable<SpoolEvent>) {
  let text = '';
  for await (const event of events) {
    if (event.kind === 'exit') return { text, exit: event };
    text += event.data.toString('utf8');
  }
  return { text, exit: undefined };
}
