import { WebSocket } from 'ws';
import { EXEC_SOCKET, ExecSocket, socketOpened } from '../exec-socket.js';
import { type KubeApi, KubeError } from './kube-api.js';

const STDOUT = 1;
const STDERR = 2;
const STATUS = 3;
/** Servers before 1.30 know only the second one, in which the end of the input cannot be told. It is not needed here. */
const PROTOCOLS = ['v5.channel.k8s.io', 'v4.channel.k8s.io'];
const HANDSHAKE_MS = 20_000;
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
    ...EXEC_SOCKET,
    ...(await api.socketOptions()),
    handshakeTimeout: HANDSHAKE_MS,
  });
  // Listens before it is open, because messages may follow at once.
  const stream = new ExecStream(socket);
  await socketOpened(
    socket,
    `the API server of Kubernetes at ${api.host}`,
    (status) => new KubeError(status, '', `status ${status}`),
    (status) => api.stats.noteAnswer('exec', status),
  );
  return stream;
}

/** The input and output of a command in a pod. */
export class ExecStream extends ExecSocket {
  /** Whether the API server has said how the command ended. */
  hasStatus = false;
  /** Whether it said that the command has succeeded. */
  hasSucceeded = false;
  private complaint = '';

  protected override takeMessage(message: Buffer): void {
    const content = message.subarray(1);
    if (message[0] === STDOUT && content.length > 0) {
      this.pass(content);
    } else if (message[0] === STDERR) {
      this.complaint = (this.complaint + content.toString('utf8')).slice(-MAX_COMPLAINT);
    } else if (message[0] === STATUS) {
      this.hasStatus = true;
      this.hasSucceeded = isSuccess(content);
      this.push(null);
    }
  }

  protected override brokenBy(): Error | undefined {
    if (this.hasSucceeded) return undefined;
    return new Error(this.complaint.trim() || 'the connection to the pod broke');
  }
}

function isSuccess(status: Buffer): boolean {
  try {
    return (JSON.parse(status.toString('utf8')) as { status?: unknown }).status === 'Success';
  } catch {
    return false;
  }
}
