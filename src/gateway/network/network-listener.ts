import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { createServer as createServerWithTls } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { reset } from '../egress/connections.js';
import type { GrantSeal } from '../grants.js';
import type { RelayServer } from '../server.js';
import { CONNECT_PATH, UPGRADE_PROTOCOL } from './dial-gateway.js';
import { sandboxOf } from './identity.js';

const HEAD_MS = 10_000;
const CHECK_HEADS_MS = 1_000;
const KEEPALIVE_MS = 30_000;
/** Connections of one address that have not identified themselves yet. Relays take milliseconds for it. */
const MAX_PENDING = 256;
const MAX_CONNECTIONS = 20_000;

export interface NetworkListenerOptions {
  relays: RelayServer;
  seal: GrantSeal;
  /** A certificate with its key, as PEM. Default: connections are not encrypted. */
  tls?: { cert: string; key: string } | undefined;
  /** Why the gateway is not ready; `null` if it is. */
  problem: () => string | null;
}

/**
 * Serves relays and workers over the network. A connection begins as an HTTP request with an upgrade. Relays identify
 * their sandbox in it; connections without an identity can only read usage, which needs a proof. `GET /healthz` and
 * `GET /readyz` are for probes.
 */
export class NetworkListener {
  private readonly server: Server;
  private readonly sockets = new Set<Socket>();
  private readonly relays = new Set<Socket>();
  private isDraining = false;
  private readonly pending = new Map<string, number>();

  constructor(private readonly options: NetworkListenerOptions) {
    const { tls } = options;
    const limits = {
      headersTimeout: HEAD_MS,
      requestTimeout: HEAD_MS,
      connectionsCheckingInterval: CHECK_HEADS_MS,
      keepAliveTimeout: HEAD_MS,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEPALIVE_MS,
    };
    this.server = tls
      ? createServerWithTls({ ...limits, ...tls, allowHalfOpen: true, handshakeTimeout: HEAD_MS })
      : createServer(limits);
    this.server.maxConnections = MAX_CONNECTIONS;
    this.server.on('connection', (socket: Socket) => this.count(socket));
    this.server.on('tlsClientError', (_error, socket: Socket) => socket.destroy());
    this.server.on('clientError', (_error, socket) => reset(socket as Socket));
    this.server.on('request', (request, response) => {
      const { status, text } = this.answer(request);
      response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8' }).end(`${text}\n`);
    });
    this.server.on('upgrade', (request, socket, head) => this.upgrade(request, socket, head));
  }

  /** @returns the port */
  async listen(port: number, host: string): Promise<number> {
    this.server.listen(port, host);
    await once(this.server, 'listening');
    return (this.server.address() as AddressInfo).port;
  }

  /** How many connections of relays are open. */
  get relayConnections(): number {
    return this.relays.size;
  }

  /** Accepts no more connections of relays, which then try another gateway. Those that are open continue. */
  drain(): void {
    this.isDraining = true;
  }

  /** Ends everything. */
  close(): void {
    this.server.close();
    for (const socket of this.sockets) socket.destroy();
  }

  private answer({ method, url = '' }: IncomingMessage): { status: number; text: string } {
    const path = url.replace(/\?.*$/s, '');
    if (path === CONNECT_PATH)
      return { status: 426, text: `Connect with "Upgrade: ${UPGRADE_PROTOCOL}"` };
    if (path !== '/healthz' && path !== '/readyz') return { status: 404, text: 'Not found' };
    if (method !== 'GET' && method !== 'HEAD') return { status: 405, text: 'Method not allowed' };
    const problem = path === '/readyz' ? this.options.problem() : null;
    return problem === null ? { status: 200, text: 'ok' } : { status: 503, text: problem };
  }

  private upgrade(request: IncomingMessage, stream: Duplex, head: Buffer): void {
    const socket = stream as Socket;
    socket.on('error', () => undefined);
    this.settle(request.socket);
    const { authorization } = request.headers;
    const isOurs =
      request.url === CONNECT_PATH && request.headers.upgrade?.toLowerCase() === UPGRADE_PROTOCOL;
    if (!isOurs) return refuse(socket, '404 Not Found');
    const identity = /^Bearer (\S+)$/i.exec(authorization ?? '')?.[1];
    const sandbox = identity === undefined ? null : sandboxOf(this.options.seal, identity);
    if (sandbox === undefined || (authorization !== undefined && sandbox === null))
      return refuse(socket, '401 Unauthorized');
    if (sandbox !== null) {
      if (this.isDraining) return refuse(socket, '503 Service Unavailable');
      this.relays.add(socket);
      socket.once('close', () => this.relays.delete(socket));
    }
    socket.setTimeout(0);
    if (head.length > 0) socket.unshift(head);
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${UPGRADE_PROTOCOL}\r\n\r\n`,
    );
    this.options.relays.serve(socket, { sandbox });
  }

  /** Limits the connections of an address that have not identified themselves. */
  private count(socket: Socket): void {
    const address = socket.remoteAddress ?? '';
    const pending = this.pending.get(address) ?? 0;
    if (pending >= MAX_PENDING) return reset(socket);
    this.pending.set(address, pending + 1);
    this.sockets.add(socket);
    addressOf.set(socket, address);
    socket.once('close', () => {
      this.sockets.delete(socket);
      this.settle(socket);
    });
  }

  /** A connection is not pending any more. */
  private settle(socket: Socket): void {
    const raw = (socket as { _parent?: Socket | null })._parent ?? socket;
    const address = addressOf.get(raw);
    if (address === undefined) return;
    addressOf.delete(raw);
    const left = (this.pending.get(address) ?? 1) - 1;
    if (left > 0) this.pending.set(address, left);
    else this.pending.delete(address);
  }
}

/** The addresses of pending connections: a closed socket does not know its own any more. */
const addressOf = new WeakMap<Socket, string>();

function refuse(socket: Socket, status: string): void {
  socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
  socket.resume();
  socket.setTimeout(HEAD_MS, () => socket.destroy());
}
