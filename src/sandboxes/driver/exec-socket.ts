import type { IncomingHttpHeaders } from 'node:http';
import { Duplex } from 'node:stream';
import type { ClientOptions, WebSocket } from 'ws';
import { SandboxError } from '../../supervisor/sandbox-error.js';

const MAX_MESSAGE_BYTES = 8 * 1024 * 1024;

/** How to open the WebSocket of a command that runs elsewhere. */
export const EXEC_SOCKET = {
  maxPayload: MAX_MESSAGE_BYTES,
  perMessageDeflate: false,
  followRedirects: false,
} satisfies ClientOptions;

const SWITCHING_PROTOCOLS = 101;
/** The channel of a command's input, which is the first byte of each message. */
const STDIN = 0;

/** The input and output of a command that runs elsewhere, over a WebSocket whose messages begin with their channel. */
export abstract class ExecSocket extends Duplex {
  constructor(protected readonly socket: WebSocket) {
    super({ allowHalfOpen: true });
    this.on('error', () => undefined);
    socket.on('message', (data, isBinary) => this.takeMessage(data as Buffer, isBinary));
    socket.on('error', (error) => this.destroy(error));
    socket.on('close', () => this.destroy(this.brokenBy()));
  }

  protected abstract takeMessage(message: Buffer, isBinary: boolean): void;

  /** Why the connection's end is an error; `undefined` if the command had ended. */
  protected abstract brokenBy(): Error | undefined;

  /** Passes output on. Does not read more than is taken: what a sandbox sends must not fill this process. */
  protected pass(output: Buffer): void {
    if (!this.push(output)) this.socket.pause();
  }

  override _read(): void {
    this.socket.resume();
  }

  override _write(data: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    const message = Buffer.allocUnsafe(data.length + 1);
    message[0] = STDIN;
    data.copy(message, 1);
    this.socket.send(message, (error) => done(error));
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.socket.terminate();
    done(error);
  }
}

/**
 * Resolves when a WebSocket is open.
 * @param who does not answer, in words, if there is no connection
 * @param note told the status of the answer; `undefined` without one
 * @throws what `refused` makes of an answer that is not a WebSocket; SandboxError `unavailable` without an answer
 */
export async function socketOpened(
  socket: WebSocket,
  who: string,
  refused: (status: number, headers: IncomingHttpHeaders) => Error,
  note: (status: number | undefined) => void,
): Promise<void> {
  let status: number | undefined;
  const opened = new Promise<void>((resolve, reject) => {
    socket.once('open', () => {
      status = SWITCHING_PROTOCOLS;
      resolve();
    });
    socket.once('unexpected-response', (request, response) => {
      status = response.statusCode ?? 500;
      reject(refused(status, response.headers));
      request.destroy();
    });
    socket.once('error', (error) => {
      const why = (error as { code?: string }).code ?? error.message;
      const message = `${who} does not answer (${why})`;
      reject(new SandboxError('unavailable', message, { cause: error }));
    });
  });
  await opened.finally(() => note(status));
}
