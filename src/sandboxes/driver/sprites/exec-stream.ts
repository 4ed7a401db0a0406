import { WebSocket } from 'ws';
import { EXEC_SOCKET, ExecSocket, socketOpened } from '../exec-socket.js';
import { SpritesError, type SpritesApi } from './sprites-api.js';

const STDOUT = 1;
const EXIT = 3;
const STDIN_EOF = 4;
const HANDSHAKE_MS = 60_000;
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
    ...EXEC_SOCKET,
    headers: api.headers,
    handshakeTimeout: HANDSHAKE_MS,
  });
  // Listens before it is open, because messages may follow at once.
  const stream = new ExecStream(socket);
  await socketOpened(
    socket,
    api.host,
    (status, headers) => {
      const seconds = Number(headers['retry-after'] ?? Number.NaN);
      const retryAfterMs = seconds > 0 ? seconds * 1000 : undefined;
      return new SpritesError(status, '', `status ${status}`, retryAfterMs);
    },
    (status) => api.stats.noteAnswer('exec', status),
  );
  return stream;
}

/** The input and output of a command in a sprite. */
class ExecStream extends ExecSocket {
  /** How the command ended, once that is known. */
  exitCode: number | undefined;

  protected override takeMessage(message: Buffer, isBinary: boolean): void {
    // Text is about sessions and ports.
    if (!isBinary || this.exitCode !== undefined) return;
    if (message[0] === STDOUT) {
      this.pass(message.subarray(1));
    } else if (message[0] === EXIT) {
      this.exitCode = message[1] ?? 0;
      this.push(null);
    }
  }

  protected override brokenBy(): Error | undefined {
    if (this.exitCode !== undefined) return undefined;
    return new Error('the connection to the sprite broke');
  }

  override _final(done: (error?: Error | null) => void): void {
    if (this.socket.readyState !== WebSocket.OPEN) return done();
    this.socket.send(Buffer.from([STDIN_EOF]), () => done());
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (this.exitCode === undefined) return super._destroy(error, done);
    this.socket.close(CLOSED_IN_ORDER);
    done(error);
  }
}
