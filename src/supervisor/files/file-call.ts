import type { Readable, Writable } from 'node:stream';
import { arrivals } from '../../common/arrivals.js';
import { errorOf } from '../protocol/call-client.js';
import {
  decodeItem,
  decodeJson,
  encodeFrame,
  encodeHeader,
  FrameDecoder,
  type Item,
  ProtocolError,
} from '../protocol/frames.js';
import { SandboxError } from '../sandbox-error.js';

/** One access to files of a sandbox, as `native/serve-files.c` serves it. Paths are absolute, in home or workspace. */
export type FileRequest =
  | { call: 'list'; path: string; after: string; limit: number }
  | { call: 'open' | 'remove' | 'tree'; path: string }
  /** Runs a script of the service in a folder; see `FileAccess.script`. */
  | { call: 'script'; path: string; limitMs: number }
  /** Without a mode, the new file has that of the file that it replaces, or 0644. */
  | { call: 'write'; path: string; mode: number | null };

/** The folders that files may be in. */
export interface FileRoots {
  home: string;
  workspace: string;
}

export interface FileCall {
  request: FileRequest;
  /** The content of a written file, the range to read of an opened one, or a script. */
  input: AsyncIterable<Buffer>;
  signal: AbortSignal;
}

/** The standard input and output of a program that serves files; a socket may be both. The program ends with them. */
export interface FileServer {
  stdin: Writable;
  stdout: Readable;
}

/** The number of input bytes in one frame. */
const PIECE_BYTES = 64 * 1024;
/** How much input may wait for the program. */
const WAITING_BYTES = 256 * 1024;
/** The longest path that the kernel accepts, in bytes. */
export const MAX_PATH_BYTES = 4095;

/**
 * Exchanges one call with the program that serves files.
 * @param room how many bytes a written file may have
 * @throws SandboxError `missing`, `conflict`, `full`, `failed`, `aborted`
 */
export async function* callFiles(
  server: FileServer,
  { roots, request, input, signal, room }: FileCall & { roots: FileRoots; room: number },
): AsyncGenerator<Item, void, undefined> {
  const decoder = new FrameDecoder({ takesContent: true });
  const { stdin, stdout } = server;
  const abort = (): void => {
    stdin.destroy();
    stdout.destroy();
  };
  signal.addEventListener('abort', abort);
  let failed: Error | undefined;
  stdin.on('error', () => undefined);
  try {
    if (signal.aborted) abort();
    for await (const data of arrivals(stdout)) {
      for (const { type, payload } of decoder.push(data)) {
        if (type === 'end') return;
        if (type === 'content') yield { header: {}, bytes: payload };
        else if (type === 'item') yield decodeItem(payload);
        else if (type === 'error') throw errorOf(decodeJson(payload));
        else if (type === 'hello') {
          stdin.write(encodeFrame('call', 0, fieldsOf(roots, request, room)));
          sendInput(stdin, input).catch((error: Error) => {
            failed ??= error;
            abort();
          });
        }
      }
    }
  } catch (error) {
    if (error instanceof SandboxError) throw error;
    failed ??= error as Error;
  } finally {
    signal.removeEventListener('abort', abort);
    abort();
  }
  if (signal.aborted) throw new SandboxError('aborted', 'the call was aborted');
  if (failed === undefined && decoder.isWithinContent) {
    throw new SandboxError('failed', 'the file was cut while it was read');
  }
  const why = failed instanceof ProtocolError ? 'its answer cannot be read' : 'it ended early';
  throw new SandboxError('failed', `the access to the files failed: ${why}`, { cause: failed });
}

async function sendInput(stdin: Writable, input: AsyncIterable<Buffer>): Promise<void> {
  for await (const data of input) {
    for (let at = 0; at < data.length; at += PIECE_BYTES) {
      if (stdin.destroyed) return;
      const piece = data.subarray(at, at + PIECE_BYTES);
      stdin.cork();
      stdin.write(encodeHeader('input', 0, piece.length));
      stdin.write(piece);
      stdin.uncork();
      // What waits is sent together, so that the two programs take turns less often.
      if (stdin.writableLength >= WAITING_BYTES) await drained(stdin);
    }
  }
  if (!stdin.destroyed) stdin.write(encodeFrame('inputEnd', 0));
}

/** Waits until the stream takes more, or is closed. */
function drained(stream: Writable): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      stream.off('drain', done).off('close', done);
      resolve();
    };
    stream.on('drain', done).on('close', done);
    if (stream.destroyed || !stream.writableNeedDrain) done();
  });
}

function fieldsOf({ home, workspace }: FileRoots, request: FileRequest, room: number): Buffer {
  const { call, path } = request;
  const fields = [home, workspace, call, path];
  if (call === 'list') fields.push(request.after, String(request.limit));
  if (call === 'script') fields.push(String(request.limitMs));
  if (call === 'write') fields.push(request.mode?.toString(8) ?? '', String(room));
  if (fields.some((field) => field.includes('\0')) || Buffer.byteLength(path) > MAX_PATH_BYTES) {
    throw new SandboxError('missing', 'there is no such path');
  }
  return Buffer.from(fields.map((field) => `${field}\0`).join(''));
}
