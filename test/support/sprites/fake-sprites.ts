import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { WebSocketServer } from 'ws';
import { failBefore, Faults, sendRefusal } from './faults.js';
import { textOf } from './files.js';
import { SpritesNetwork } from './network.js';
import { serveSprite, type Call } from './routes.js';
import { commandOf, Session } from './sessions.js';
import { Sprite, type Timing } from './sprite.js';
import { milliseconds } from './tasks.js';

const PAGE = 50;
const DEFAULTS: Timing = {
  pauseMs: 30_000,
  coldMs: 600_000,
  disconnectMs: 10_000,
  restoreMs: 300,
};

/**
 * The vendor's interface over real HTTP and WebSockets, with a real machine behind each sprite. Its switches cause what
 * goes wrong on a network and at the vendor. The vendor's own client works against it; see vendor-sdk.spec.ts.
 */
export class FakeSprites {
  readonly token = 'fake-token';
  readonly faults = new Faults();
  readonly sprites = new Map<string, Sprite>();
  /** How many sprites may exist; creating more is refused, or waits if the client asks for that. */
  limit = Number.POSITIVE_INFINITY;
  /** How many sprites were ever created. */
  created = 0;
  /** Every request: method, path with `*` for the sprite's name, and the names of its parameters. */
  readonly seen: {
    method: string;
    path: string;
    parameters: string[];
    url: string;
  }[] = [];
  private readonly network = new SpritesNetwork();
  /** The addresses of names, as sprites resolve them. */
  readonly names = this.network.names;
  private readonly server = createServer((request, response) => {
    this.answer(request, response).catch((error: unknown) => this.fail(response, error));
  });
  private readonly webSockets = new WebSocketServer({
    noServer: true,
    maxPayload: 64 * 1024 * 1024,
  });
  private readonly timing: Timing;
  private folder = '';

  constructor(timing: Partial<Timing> = {}) {
    this.timing = { ...DEFAULTS, ...timing };
    this.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      socket.on('error', () => undefined);
      this.upgrade(request, socket, head).catch((error: unknown) => this.fail(socket, error));
    });
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async start(): Promise<this> {
    this.folder = await mkdtemp(join(tmpdir(), 'fake-sprites-'));
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    return this;
  }

  async stop(): Promise<void> {
    this.faults.clear();
    for (const socket of this.webSockets.clients) socket.terminate();
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
    await Promise.all([...this.sprites.values()].map((sprite) => sprite.remove()));
    await this.network.stop();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** The sprite with this name. @throws Error if there is none */
  sprite(name: string): Sprite {
    const found = this.sprites.get(name);
    if (found === undefined) throw new Error(`there is no sprite ${name}`);
    return found;
  }

  /**
   * Connects sprites with other hosts, by HTTP and HTTPS at their usual ports, as far as their network policies allow.
   * Without this they reach only this host.
   */
  connectTo(hosts: readonly string[]): void {
    for (const host of hosts) this.network.connectTo(host);
  }

  /** Removes a sprite behind the client's back. */
  async vanish(name: string): Promise<void> {
    const sprite = this.sprite(name);
    this.sprites.delete(name);
    this.network.forget(name);
    await sprite.remove();
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const call = this.read(request);
    const fault = this.faults.take(call);
    if (await failBefore(fault, request, response)) return;
    if (fault.loseAnswer) loseAnswer(response);
    if (!this.isAuthorized(request)) {
      return sendRefusal(response, { status: 401, code: 'unauthorized', message: 'bad token' });
    }
    if (!call.path.startsWith('/v1/sprites')) return notFound(response, call.path);
    if (call.name === undefined) return this.serveSprites(call, request, response);
    const sprite = this.sprites.get(call.name);
    if (sprite === undefined) return notFound(response, `sprite ${call.name}`);
    if (call.method === 'DELETE' && call.rest.length === 0) {
      await this.vanish(call.name);
      return void response.writeHead(204).end();
    }
    await serveSprite(sprite, call, request, response);
  }

  private async serveSprites(
    call: Call,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    if (call.method === 'POST') return this.create(request, response);
    const { query } = call;
    const prefix = query.get('prefix') ?? '';
    const all = [...this.sprites.values()]
      .filter(({ name }) => name.startsWith(prefix))
      .toSorted((a, b) => (a.name < b.name ? -1 : 1));
    const after = query.get('continuation_token') ?? '';
    const rest = all.filter(({ name }) => name > after);
    const page = rest.slice(0, Math.min(PAGE, Number(query.get('max_results') ?? PAGE)));
    const more = page.length < rest.length;
    json(response, 200, {
      sprites: page.map((sprite) => sprite.describe()),
      has_more: more,
      ...(more && { next_continuation_token: page.at(-1)?.name }),
    });
  }

  private async create(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = JSON.parse(await textOf(request)) as {
      name?: string;
      labels?: string[];
      url_settings?: unknown;
    };
    const { name = '' } = body;
    if (!/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/.test(name)) {
      return sendRefusal(response, { status: 400, code: 'invalid_name', message: name });
    }
    if (this.sprites.has(name)) {
      return sendRefusal(response, { status: 409, code: 'already_exists', message: name });
    }
    if (this.sprites.size >= this.limit) {
      const code = 'concurrent_sprite_limit_exceeded';
      const message = `at most ${this.limit} sprites`;
      return sendRefusal(response, { status: 429, code, message, retryAfterSeconds: 1 });
    }
    const sprite = new Sprite(name, join(this.folder, name), this.network, this.timing);
    sprite.labels = body.labels ?? [];
    if (body.url_settings !== undefined) sprite.urlSettings = body.url_settings;
    this.sprites.set(name, sprite);
    this.created += 1;
    json(response, 201, sprite.describe());
  }

  private async upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const call = this.read(request, 'WS');
    const fault = this.faults.take(call);
    if (await failBefore(fault, request, socket)) return;
    if (!this.isAuthorized(request)) {
      return sendRefusal(socket, { status: 401, code: 'unauthorized', message: 'bad token' });
    }
    const sprite = call.name === undefined ? undefined : this.sprites.get(call.name);
    const attached = call.rest[1] === undefined ? undefined : sprite?.sessions.get(call.rest[1]);
    const exists = sprite !== undefined && call.rest[0] === 'exec';
    if (!exists || (call.rest[1] !== undefined && attached === undefined)) {
      return sendRefusal(socket, { status: 404, code: 'not_found', message: call.path });
    }
    const { query } = call;
    await sprite.awake(() => {
      this.webSockets.handleUpgrade(request, socket, head, (client) => {
        if (fault.closeAtOnce) return client.close(1000);
        const session = attached ?? startSession(sprite, query, this.timing);
        session.join(client, fault, attached !== undefined);
      });
    });
  }

  private read(request: IncomingMessage, method = request.method ?? ''): Call {
    const url = new URL(request.url ?? '/', 'http://fake');
    const [, version, sprites, encoded, ...rest] = url.pathname.split('/');
    const isKnown = version === 'v1' && sprites === 'sprites';
    const name = isKnown && encoded ? decodeURIComponent(encoded) : undefined;
    const parts = rest.map(decodeURIComponent);
    const path = isKnown
      ? ['/v1/sprites', ...(name === undefined ? [] : ['*']), ...parts].join('/')
      : url.pathname;
    const parameters = [...new Set(url.searchParams.keys())];
    this.seen.push({ method, path, parameters, url: request.url ?? '' });
    return { method, path, name, rest: parts, query: url.searchParams };
  }

  private isAuthorized(request: IncomingMessage): boolean {
    return request.headers.authorization === `Bearer ${this.token}`;
  }

  private fail(answer: ServerResponse | Duplex, error: unknown): void {
    const message = String((error as Error).stack);
    if ('headersSent' in answer && answer.headersSent) answer.destroy();
    else sendRefusal(answer, { status: 500, code: 'internal_error', message });
  }
}

function startSession(sprite: Sprite, query: URLSearchParams, timing: Timing): Session {
  const tty = query.get('tty') === 'true';
  const what = commandOf(query);
  const quoted = what.command.map((part) => `'${part.replaceAll("'", `'\\''`)}'`).join(' ');
  const command = tty ? ['/usr/bin/script', '-qefc', quoted, '/dev/null'] : what.command;
  const child = sprite.machine.spawn({ ...what, command });
  if (query.get('stdin') !== 'true') child.stdin?.end();
  const after = milliseconds(query.get('max_run_after_disconnect') ?? '');
  const options = {
    tty,
    detachable: query.get('detachable') === 'true',
    disconnectMs: Number.isNaN(after) ? timing.disconnectMs : after,
    directory: what.directory ?? '/home/sprite',
  };
  const session = new Session(what.command, options, child, ({ id }) => sprite.sessions.delete(id));
  sprite.addSession(session);
  return session;
}

/** Closes the connection when the answer would be sent. */
function loseAnswer(response: ServerResponse): void {
  const lose = () => {
    response.destroy();
    return response;
  };
  Object.assign(response, { writeHead: () => response, write: () => true, end: lose });
}

function json(response: ServerResponse, status: number, value: unknown): void {
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(value));
}

function notFound(response: ServerResponse, what: string): void {
  sendRefusal(response, { status: 404, code: 'not_found', message: `there is no ${what}` });
}
