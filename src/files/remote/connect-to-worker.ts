import { once } from 'node:events';
import { type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Socket } from 'node:net';
import type { FileRoots } from '../../supervisor/files/file-call.js';
import { CallConnection } from '../../supervisor/protocol/call-client.js';
import { BEAT_MS } from '../../supervisor/protocol/call-server.js';
import { encodeFrame } from '../../supervisor/protocol/frames.js';
import {
  FILES_PATH,
  FILES_UPGRADE,
  LAYOUT_HEADER,
  PROOF_HEADER,
  TOKEN_HEADER,
} from './files-protocol.js';
import type { TokenScope, WorkerTokens } from './worker-tokens.js';

const CONNECT_LIMIT_MS = 5_000;
/** A connection that is not used at once is closed. */
const IDLE_MS = 5_000;

/** A connection to a worker that serves the files of one sandbox. */
export interface WorkerConnection {
  connection: CallConnection;
  layout: FileRoots;
}

/** @throws Error that says why the worker cannot be reached */
export async function connectToWorker(
  scope: TokenScope,
  tokens: WorkerTokens,
): Promise<WorkerConnection> {
  const { url, sandboxId } = scope;
  const token = tokens.issue(scope);
  const send = url.startsWith('https:') ? httpsRequest : httpRequest;
  const request = send(`${url}${FILES_PATH}${sandboxId}`, {
    // A connection of its own, which is never used again.
    agent: false,
    headers: { connection: 'Upgrade', upgrade: FILES_UPGRADE, [TOKEN_HEADER]: token },
  });
  const { socket, headers } = await upgraded(request);
  try {
    // Without the proof, anybody who answers at the address would get the files that are written.
    if (!tokens.isProof(String(headers[PROOF_HEADER]), token, scope))
      throw new Error('it does not have the encryption keys of this process');
    const connection = new CallConnection(socket.setNoDelay(true), { idleMs: IDLE_MS });
    keepAlive(socket);
    return { connection, layout: layoutOf(String(headers[LAYOUT_HEADER])) };
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

/** @returns the connection, with its data not read yet */
async function upgraded(
  request: ClientRequest,
): Promise<{ socket: Socket; headers: IncomingMessage['headers'] }> {
  const ended = new AbortController();
  const { signal } = ended;
  const late = (): void => void request.destroy(new Error('it does not answer in time'));
  const limit = setTimeout(late, CONNECT_LIMIT_MS);
  const answered = once(request, 'response', { signal }).then(([response]) => {
    const { statusCode } = response as IncomingMessage;
    (response as IncomingMessage).resume();
    request.destroy();
    throw new Error(
      statusCode === 401
        ? 'it has other encryption keys, or another time'
        : `it answers ${statusCode}`,
    );
  });
  answered.catch(() => undefined);
  try {
    const opened = once(request, 'upgrade', { signal });
    opened.catch(() => undefined);
    request.end();
    const [response, socket, head] = (await Promise.race([opened, answered])) as [
      IncomingMessage,
      Socket,
      Buffer,
    ];
    if (head.length > 0) socket.unshift(head);
    return { socket, headers: response.headers };
  } finally {
    clearTimeout(limit);
    ended.abort();
    // A late error is not an uncaught one.
    request.on('error', () => undefined);
  }
}

/** The worker ends a connection that is silent. */
function keepAlive(socket: Socket): void {
  const beats = setInterval(() => socket.write(encodeFrame('beat', 0)), BEAT_MS).unref();
  socket.once('close', () => clearInterval(beats));
}

function layoutOf(header: string): FileRoots {
  const layout: unknown = JSON.parse(Buffer.from(header, 'base64url').toString('utf8'));
  const { home, workspace } = layout as Record<string, unknown>;
  if (typeof home !== 'string' || typeof workspace !== 'string')
    throw new Error('its answer cannot be read');
  return { home, workspace };
}
