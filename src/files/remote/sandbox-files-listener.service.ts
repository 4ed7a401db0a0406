import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import {
  type BeforeApplicationShutdown,
  Inject,
  Injectable,
  Logger,
  type OnModuleInit,
} from '@nestjs/common';
import { AppConfig } from '../../config/app-config.js';
import type { SandboxDriver } from '../../sandboxes/driver/sandbox-driver.js';
import { SANDBOX_DRIVER } from '../../sandboxes/sandbox-host.js';
import type { FileRequest } from '../../supervisor/files/file-call.js';
import { BEAT_MS, serveCalls } from '../../supervisor/protocol/call-server.js';
import {
  FILES_PATH,
  FILES_UPGRADE,
  LAYOUT_HEADER,
  PROOF_HEADER,
  TOKEN_HEADER,
} from './files-protocol.js';
import { WorkerTokens } from './worker-tokens.js';

/** Each connection is one access to files. */
const MAX_CONNECTIONS = 512;
/** How long a peer may take to send its request. */
const HEAD_LIMIT_MS = 5_000;
/** A peer that misses so many beats is gone. */
const SILENT_BEATS = 3;

/**
 * Serves the files of this worker's sandboxes to processes on other hosts, at `WORKER_URL`. Only processes with the same
 * encryption keys can connect.
 */
@Injectable()
export class SandboxFilesListener implements OnModuleInit, BeforeApplicationShutdown {
  /** The address for other processes; `null` if this worker has none. */
  url: string | null = null;
  private readonly logger = new Logger('Files');
  private readonly connections = new Map<Socket, Promise<void>>();
  private readonly server = createServer(
    {
      headersTimeout: HEAD_LIMIT_MS,
      requestTimeout: HEAD_LIMIT_MS,
      connectionsCheckingInterval: HEAD_LIMIT_MS,
    },
    (_request, response) => void response.writeHead(404, { connection: 'close' }).end(),
  );

  constructor(
    private readonly config: AppConfig,
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
    private readonly tokens: WorkerTokens,
  ) {
    this.server.maxConnections = MAX_CONNECTIONS;
    this.server.on('upgrade', (request, socket) => this.connect(request, socket as Socket));
  }

  async onModuleInit(): Promise<void> {
    const { worker, host } = this.config;
    if (worker === undefined) return;
    this.server.listen(worker.port, host);
    await once(this.server, 'listening');
    const { port } = this.server.address() as AddressInfo;
    this.url = worker.url.replace(/:0$/, `:${port}`);
    this.logger.log(`Serving the files of sandboxes at ${this.url}`);
  }

  /** Ends what is being transferred; clients continue with ranges. */
  async beforeApplicationShutdown(): Promise<void> {
    if (this.url === null) return;
    this.server.close();
    this.server.closeAllConnections();
    for (const socket of this.connections.keys()) socket.destroy();
    await Promise.all(this.connections.values());
  }

  private connect(request: IncomingMessage, socket: Socket): void {
    socket.on('error', () => undefined);
    const { url = '', headers } = request;
    const sandboxId = url.startsWith(FILES_PATH) ? url.slice(FILES_PATH.length) : '';
    const isCall = headers.upgrade === FILES_UPGRADE && /^[0-9a-f-]{36}$/.test(sandboxId);
    if (!isCall) return refuse(socket, '404 Not Found');
    const token = headers[TOKEN_HEADER];
    const scope = { url: this.url ?? '', sandboxId };
    const proof = this.tokens.redeem(typeof token === 'string' ? token : '', scope);
    if (proof === undefined) return refuse(socket, '401 Unauthorized');
    const { home, workspace } = this.driver.layout(sandboxId);
    const layout = Buffer.from(JSON.stringify({ home, workspace })).toString('base64url');
    const head = [
      'HTTP/1.1 101 Switching Protocols',
      'Connection: Upgrade',
      `Upgrade: ${FILES_UPGRADE}`,
      `${PROOF_HEADER}: ${proof}`,
      `${LAYOUT_HEADER}: ${layout}`,
    ];
    socket.write(`${head.join('\r\n')}\r\n\r\n`);
    const served = this.serve(socket, sandboxId)
      .catch((error: unknown) => this.logger.error(error))
      .finally(() => this.connections.delete(socket));
    this.connections.set(socket, served);
  }

  private async serve(socket: Socket, sandboxId: string): Promise<void> {
    socket.setTimeout(0).setNoDelay(true);
    const stopWatching = endSilent(socket);
    try {
      await serveCalls(socket, {
        files: ({ parameters, input, signal }) => {
          const request = parameters['request'] as FileRequest;
          return this.driver.files({ sandboxId, request, input, signal });
        },
      });
    } finally {
      stopWatching();
    }
  }
}

/** Ends a connection whose peer has gone without closing it, so that no access to files waits for it. */
function endSilent(socket: Socket): () => void {
  let seen = socket.bytesRead;
  let silent = 0;
  const timer = setInterval(() => {
    silent = socket.bytesRead === seen ? silent + 1 : 0;
    seen = socket.bytesRead;
    if (silent >= SILENT_BEATS) socket.destroy();
  }, BEAT_MS);
  return () => clearInterval(timer);
}

function refuse(socket: Socket, status: string): void {
  socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
}
