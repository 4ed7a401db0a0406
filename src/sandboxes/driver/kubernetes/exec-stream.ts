import { Duplex } from 'node:stream';
import { WebSocket } from 'ws';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { type KubeApi, KubeError } from './kube-api.js';

const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;
const STATUS = 3;
/** Servers before 1.30 know only the second one, in which the end of the input cannot be told. It is not needed here. */
const PROTOCOLS = ['v5.channel.k8s.io', 'v4.channel.k8s.io'];
const HANDSHAKE_MS = 20_000;
const MAX_MESSAGE_BYTES = 8 * 1024 * 1024;
const MAX_COMPLAINT = 300;

/**
 * Runs a command in a container and connects its standard input and output. The command ends with the stream. A
 * connection that ends without a status is an error: how the command ended is unknown.
 * @param path of the pod in the API
 * @throws KubeError if the API server refuses, SandboxError `unavailable` if it does not answer
 */
export async function openExec(
  api: KubeApi,
  path: string,
  container: string,
  command: readonly string[],
): Promise<ExecStream> {
  const url = api.socketUrl(`${path}/exec`, [
    ...command.map((part) => ['command', part] as const),
    ['container', container],
    ['stdin', 'true'],
    ['stdout', 'true'],
    ['stderr', 'true'],
  ]);
  const socket = new WebSocket(url, PROTOCOLS, {
    ...(await api.socketOptions()),
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
      request.destroy();
      reject(new KubeError(statusCode, '', `status ${statusCode}`));
    });
    socket.once('error', (error) => {
      const why = (error as { code?: string }).code ?? error.message;
      const message = `the API server of Kubernetes at ${api.host} does not answer (${why})`;
      reject(new SandboxError('unavailable', message, { cause: error }));
    });
  });
  await opened.catch((error: unknown) => {
    api.stats.noteAnswer('exec', error instanceof KubeError ? error.status : undefined);
    throw error;
  });
  api.stats.noteAnswer('exec', 101);
  return stream;
}

/** The input and output of a command, over a WebSocket. */
export class ExecStream extends Duplex {
  /** Whether the API server has said how the command ended. */
  hasStatus = false;
  /** Whether it said that the command has succeeded. */
  hasSucceeded = false;
  private complaint = '';

  constructor(private readonly socket: WebSocket) {
    super({ allowHalfOpen: true });
    this.on('error', () => undefined);
    socket.on('message', (data) => this.takeMessage(data as Buffer));
    socket.on('error', (error) => this.destroy(error));
    socket.on('close', () => {
      const why = this.complaint.trim() || 'the connection to the pod broke';
      if (this.hasSucceeded) this.destroy();
      else this.destroy(new Error(why));
    });
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

  private takeMessage(message: Buffer): void {
    const content = message.subarray(1);
    if (message[0] === STDOUT && content.length > 0) {
      // Does not read more than is taken: what a sandbox sends must not fill this process.
      if (!this.push(content)) this.socket.pause();
    } else if (message[0] === STDERR) {
      this.complaint = (this.complaint + content.toString('utf8')).slice(-MAX_COMPLAINT);
    } else if (message[0] === STATUS) {
      this.hasStatus = true;
      this.hasSucceeded = isSuccess(content);
      this.push(null);
    }
  }
}

function isSuccess(status: Buffer): boolean {
  try {
    return (JSON.parse(status.toString('utf8')) as { status?: unknown }).status === 'Success';
  } catch {
    return false;
  }
}
