import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** A request to the vendor's interface. */
export interface Recorded {
  /** Method, or `WS`, and path with `{name}` and `{id}` for what differs. */
  endpoint: string;
  /** The names of its query parameters and of the members of its JSON body. */
  names: string[];
}

/** Notes the requests that it receives, and passes them on if it has a target. */
export class Recorder {
  readonly seen: Recorded[] = [];
  private readonly server: Server;
  private readonly sockets = new Set<Duplex>();

  /** @param target the address that requests are passed on to; without one, answers are empty and WebSockets are refused */
  constructor(private readonly target?: string) {
    this.server = createServer((request, response) => {
      this.pass(request)
        .then(({ status, type, body }) => {
          response.writeHead(status, type === null ? {} : { 'content-type': type }).end(body);
        })
        .catch(() => response.destroy());
    });
    this.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) =>
      this.upgrade(request, socket, head),
    );
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async start(): Promise<this> {
    await once(this.server.listen(0, '127.0.0.1'), 'listening');
    return this;
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  private async pass(
    request: IncomingMessage,
  ): Promise<{ status: number; type: string | null; body: Buffer }> {
    const { method = '', url = '', headers } = request;
    const pieces: Buffer[] = [];
    for await (const piece of request as AsyncIterable<Buffer>) pieces.push(piece);
    const sent = Buffer.concat(pieces);
    const isJson = headers['content-type'] === 'application/json';
    this.note(method, url, isJson ? Object.keys(JSON.parse(sent.toString()) as object) : []);
    if (this.target === undefined) {
      return { status: 200, type: 'application/json', body: Buffer.from('{}') };
    }
    const answer = await fetch(`${this.target}${url}`, {
      method,
      headers: {
        authorization: headers.authorization ?? '',
        ...(headers['content-type'] && { 'content-type': headers['content-type'] }),
      },
      ...(sent.length > 0 && { body: sent }),
    });
    const body = Buffer.from(await answer.arrayBuffer());
    return { status: answer.status, type: answer.headers.get('content-type'), body };
  }

  private upgrade(request: IncomingMessage, client: Duplex, head: Buffer): void {
    this.note('WS', request.url ?? '', []);
    this.keep(client);
    if (this.target === undefined) return void client.destroy();
    const { hostname, port } = new URL(this.target);
    const server: Socket = connect(Number(port), hostname);
    this.keep(server);
    const lines = [`GET ${request.url} HTTP/1.1`];
    for (let at = 0; at < request.rawHeaders.length; at += 2) {
      lines.push(`${request.rawHeaders[at]}: ${request.rawHeaders[at + 1]}`);
    }
    server.write(`${lines.join('\r\n')}\r\n\r\n`);
    server.write(head);
    client.pipe(server).pipe(client);
  }

  private keep(socket: Duplex): void {
    this.sockets.add(socket);
    socket.on('error', () => socket.destroy());
    socket.once('close', () => this.sockets.delete(socket));
  }

  private note(method: string, url: string, members: string[]): void {
    const { pathname, searchParams } = new URL(url, 'http://recorder');
    const path = pathname
      .replace(/^\/v1/, '')
      .replace(/^\/sprites\/[^/]+/, '/sprites/{name}')
      .replace(/\/(exec|checkpoints)\/[^/]+/, '/$1/{id}')
      .replace(/\/services\/(?!signal$)[^/]+/, '/services/{id}');
    const names = [...new Set([...searchParams.keys(), ...members])];
    this.seen.push({ endpoint: `${method} ${path}`, names });
  }
}

/** Every endpoint that was used, with all names that were sent to it, sorted. */
export function namesByEndpoint(seen: readonly Recorded[]): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  for (const { endpoint, names } of seen) {
    found[endpoint] = [...new Set([...(found[endpoint] ?? []), ...names])].toSorted();
  }
  return found;
}
