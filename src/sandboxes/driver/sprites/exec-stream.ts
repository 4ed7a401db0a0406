import { Duplex } from 'node:stream';
import { WebSocket } from 'ws';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { SpritesError, type SpritesApi } from './sprites-api.js';

const STDIN = 0;
const STDOUT = 1;
const EXIT = 3;
const STDIN_EOF = 4;
const HANDSHAKE_MS = 60_000;
const MAX_MESSAGE_BYTES = 8 * 1024 * 1024;
const CLOSED_IN_ORDER = 1000;

/**
 * Runs a command in a sprite and connects its standard input and output. The stream ends with the command, and the
 * command with the stream. A connection that ends without an exit code is an error: how the command ended is unknown.
 * @throws SpritesError if the interface refuses, SandboxError `unavailable` if it does not answer
 */
export async function openExec(
  api: SpritesApi,
  name: string,
  command: readonly [string, ...string[]],
): Promise<ExecStream> {
  const url = api.webSocketUrl(
    [name, 'exec'],
    [...command.map((part) => ['cmd', part] as const), ['path', command[0]], ['stdin', 'true']],
  );
  const socket = new WebSocket(url, {
    headers: api.headers,
    handshakeTimeout: HANDSHAKE_MS,
    maxPayload: MAX_MESSAGE_BYTES,
    perMessageDeflate: false,
    followRedirects: false,
  });
  // Listens before it is open, because messages may follow at once.
  const stream = new ExecStream(socket);
  const opened = new Promise<void>((resolve, reject) => {
    socket.once('open', resolve);
    socket.once('unexpected-response', (request, response) => {
      const { statusCode = 500 } = response;
      const seconds = Number(response.headers['retry-after'] ?? Number.NaN);
      request.destroy();
      const retryAfterMs = seconds > 0 ? seconds * 1000 : undefined;
      reject(new SpritesError(statusCode, '', `status ${statusCode}`, retryAfterMs));
    });
    socket.once('error', (error) => {
      const message = `${api.host} does not answer (${(error as { code?: string }).code ?? error.message})`;
      reject(new SandboxError('unavailable', message, { cause: error }));
    });
  });
  await opened.catch((error: unknown) => {
    api.stats.noteAnswer('exec', error instanceof SpritesError ? error.status : undefined);
    throw error;
  });
  api.stats.noteAnswer('exec', 101);
  return stream;
}

/** The input and output of a command, over a WebSocket. */
class ExecStream extends Duplex {
  /** How the command ended, once that is known. */
  exitCode: number | undefined;

  constructor(private readonly socket: WebSocket) {
    super({ allowHalfOpen: true });
    this.on('error', () => undefined);
    socket.on('message', (data, isBinary) => {
      // Text is about sessions and ports.
      if (isBinary) this.takeFrame(data as Buffer);
    });
    socket.on('error', (error) => this.destroy(error));
    socket.on('close', () => {
      if (this.exitCode === undefined)
        this.destroy(new Error('the connection to the sprite broke'));
      else this.destroy();
    });
  }

  override _read(): void {
    this.socket.resume();
  }

  override _write(data: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    const frame = Buffer.allocUnsafe(data.length + 1);
    frame[0] = STDIN;
    data.copy(frame, 1);
    this.socket.send(frame, (error) => done(error));
  }

  override _final(done: (error?: Error | null) => void): void {
    if (this.socket.readyState !== WebSocket.OPEN) return done();
    this.socket.send(Buffer.from([STDIN_EOF]), () => done());
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (this.exitCode === undefined) this.socket.terminate();
    else this.socket.close(CLOSED_IN_ORDER);
    done(error);
  }

  private takeFrame(frame: Buffer): void {
    if (this.exitCode !== undefined) return;
    if (frame[0] === STDOUT) {
      // Does not read more than is taken: what a sandbox sends must not fill this process.
      if (!this.push(frame.subarray(1))) this.socket.pause();
    } else if (frame[0] === EXIT) {
      this.exitCode = frame[1] ?? 0;
      this.push(null);
    }
  }
}
