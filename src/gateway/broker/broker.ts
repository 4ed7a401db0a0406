import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import type { Socket } from 'node:net';
import { pipeline as connected, type Readable, type Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { callbackify, promisify } from 'node:util';
import { Agent, buildConnector } from 'undici';
import { endpointOf } from '../egress/address-policy.js';
import { type Egress, reset } from '../egress/connections.js';
import type { Grant, GrantSeal } from '../grants.js';
import { endToEnd } from '../http-headers.js';
import type { UsageFeed } from '../usage/feed.js';
import { GitRoute } from './git-route.js';
import { ModelRoute } from './model-route.js';
import { type Exchange, failureOf, noteGrant, noteRefusal, serviceOf } from './exchange.js';
import { type GrantRefusal, headerOf, Refusal, type Admission, type Route } from './route.js';
import { SandboxRequests } from './sandbox-requests.js';
import { ToolRoute } from './tool-route.js';

/** Grants are in headers, and a tool server may have many secret headers. */
const MAX_HEAD_BYTES = 512 * 1024;
const HEAD_TIMEOUT_MS = 30_000;
const IDLE_MS = 60 * 60 * 1000;
/** Models may think for a long time before they answer. */
const ANSWER_TIMEOUT_MS = 30 * 60 * 1000;
const CONNECT_TIMEOUT_MS = 60_000;
const MAX_LOGGED = 300;
/** The status in the log of a request whose client disconnected before the response. */
const CLIENT_GONE = 499;

export interface BrokerOptions {
  seal: GrantSeal;
  egress: Egress;
  /** Counts requests to model APIs. Default: nobody does. */
  usage?: UsageFeed;
  /** Hosts that the operator has configured, see {@link endpointOf}. They may have private addresses. */
  trusted: ReadonlySet<string>;
  /** Called with each request when it ends. Must not throw. */
  log: (exchange: Exchange) => void;
  /** Milliseconds since 1970. */
  now?: () => number;
  /** Certificates to trust besides Node's own, as PEM. */
  ca?: string | undefined;
}

/**
 * Forwards requests of agents to model APIs, git servers and tool servers, with the credentials that their grants hold.
 * The agent never has these credentials. A grant is only accepted from its own sandbox, until its deadline, and for its
 * own API, repositories or server. Responses are streamed as they arrive.
 */
export class Broker {
  private readonly server: Server;
  private readonly routes: readonly Route[];
  private readonly upstreams: Agent;
  private readonly requests = new SandboxRequests();
  /** The sandbox of each connection, as its relay reported it. */
  private readonly sandboxes = new WeakMap<Socket, string | null>();

  constructor(private readonly options: BrokerOptions) {
    const { seal, usage } = options;
    const check = this.check.bind(this);
    this.routes = [new ModelRoute(check, usage), new GitRoute(check), new ToolRoute(check, seal)];
    this.server = createServer(
      { maxHeaderSize: MAX_HEAD_BYTES, headersTimeout: HEAD_TIMEOUT_MS, requestTimeout: 0 },
      (request, response) => void this.serveRequest(request, response),
    );
    this.server.timeout = IDLE_MS;
    this.server.on('clientError', (_error, socket) => reset(socket as Socket));
    this.upstreams = new Agent({
      connect: this.connector(),
      headersTimeout: ANSWER_TIMEOUT_MS,
      bodyTimeout: ANSWER_TIMEOUT_MS,
    });
  }

  /** Serves a connection. @param sandbox whose it is; `null` if that is unknown */
  serve(socket: Socket, sandbox: string | null): void {
    this.sandboxes.set(socket, sandbox);
    this.server.emit('connection', socket);
    socket.resume();
  }

  async close(): Promise<void> {
    this.requests.close();
    await this.upstreams.destroy();
  }

  private async serveRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const started = performance.now();
    const { method = 'GET', socket } = request;
    const path = (request.url ?? '/').replace(/[?#].*$/s, '');
    const exchange: Exchange = {
      kind: 'unknown',
      service: serviceOf(path),
      session: undefined,
      turn: undefined,
      user: undefined,
      sandbox: this.sandboxes.get(socket) ?? null,
      method,
      target: path.slice(0, MAX_LOGGED),
      status: 0,
      durationMs: 0,
    };
    const route = this.routes.find((candidate) => candidate.matches(path));
    const end = this.requests.begin(exchange.sandbox);
    try {
      if (end === undefined) throw new Refusal(429, 'This sandbox sends too many requests');
      if (route === undefined) throw new Refusal(404, 'The gateway does not serve this path');
      const admission = route.admit(request, exchange.sandbox);
      noteGrant(exchange, admission.grant);
      exchange.target = admission.url.origin + admission.url.pathname.slice(0, MAX_LOGGED);
      await this.forward(request, response, admission, exchange, started);
    } catch (error) {
      const refusal =
        error instanceof Refusal
          ? error
          : new Refusal(502, `The gateway got no answer: ${describe(error)}`);
      if (error instanceof Refusal) noteRefusal(exchange, error);
      else {
        exchange.failed = failureOf(error, response);
        exchange.error = describe(error).slice(0, MAX_LOGGED);
      }
      if (response.headersSent || socket.destroyed) reset(socket);
      else answer(request, response, refusal, route);
    }
    end?.();
    exchange.status = response.headersSent ? response.statusCode : CLIENT_GONE;
    exchange.durationMs = Math.round(performance.now() - started);
    this.options.log(exchange);
  }

  private async forward(
    request: IncomingMessage,
    response: ServerResponse,
    admission: Admission,
    exchange: Exchange,
    started: number,
  ): Promise<void> {
    const { url } = admission;
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const { metered, transformRequest } = admission;
    const count = metered && this.options.usage?.begin(metered);
    const sent = performance.now();
    const upstream = await this.upstreams.request({
      origin: url.origin,
      path: url.pathname + url.search,
      method: request.method ?? 'GET',
      headers: requestHeaders(request, admission),
      body: hasBody(request) ? through(request, transformRequest?.() ?? []) : null,
      signal: gone.signal,
      responseHeaders: 'raw',
    });
    const answered = performance.now();
    exchange.upstreamMs = Math.round(answered - sent);
    const headers = responseHeaders(upstream.headers as unknown as readonly (Buffer | string)[]);
    const reply = { status: upstream.statusCode, headers };
    const type = headerOf(reply, 'content-type') ?? '';
    const streams = [
      ...(count === undefined ? [] : [count.meter(reply.status, type)]),
      ...(admission.transform?.(reply) ?? []),
    ];
    response.sendDate = false;
    response.writeHead(upstream.statusCode, STATUS_CODES[upstream.statusCode], reply.headers);
    // The head of an event stream must not wait for its first event.
    response.flushHeaders();
    exchange.addedMs = tenths(sent - started + performance.now() - answered);
    try {
      await pipeline([upstream.body, ...streams, response]);
    } finally {
      count?.end();
    }
  }

  /** @throws Refusal if the grant is not valid here and now */
  private check<K extends Grant['kind']>(
    text: string,
    kind: K,
    sandbox: string | null,
  ): Extract<Grant, { kind: K }> {
    const grant = this.options.seal.open(text);
    if (grant === undefined)
      throw new Refusal(401, 'This is not a key of this gateway', {
        reason: text === '' ? 'missing' : 'invalid',
      });
    const refuse = (status: number, message: string, reason: GrantRefusal) =>
      new Refusal(status, message, { reason, grant });
    if (grant.kind !== kind) throw refuse(403, `The grant is not for this (${kind})`, 'wrong_kind');
    if (grant.sandbox !== null && grant.sandbox !== sandbox)
      throw refuse(403, 'The grant belongs to another sandbox', 'wrong_sandbox');
    if ((this.options.now ?? Date.now)() >= grant.expires)
      throw refuse(401, 'The grant has expired: its turn is over', 'expired');
    return grant as Extract<Grant, { kind: K }>;
  }

  private connector(): buildConnector.connector {
    const { egress, trusted, ca } = this.options;
    const encrypt = promisify<buildConnector.Options, Socket>(
      buildConnector({
        allowH2: true,
        timeout: CONNECT_TIMEOUT_MS,
        ...(ca === undefined ? {} : { ca: [ca] }),
      }) as never,
    );
    const connectTo = async (options: buildConnector.Options): Promise<Socket> => {
      const host = options.hostname.replace(/^\[|\]$/g, '');
      const port = Number(options.port) || (options.protocol === 'https:' ? 443 : 80);
      const target = { host, port, isGateway: trusted.has(endpointOf(host, port)) };
      const socket = await egress.connect(target, AbortSignal.timeout(CONNECT_TIMEOUT_MS));
      return options.protocol === 'https:' ? encrypt({ ...options, httpSocket: socket }) : socket;
    };
    return callbackify(connectTo) as unknown as buildConnector.connector;
  }
}

function tenths(ms: number): number {
  return Math.round(ms * 10) / 10;
}

/** The request's own headers without credentials, and those of the admission. */
function requestHeaders(request: IncomingMessage, admission: Admission): string[] {
  const own = endToEnd(request);
  const dropped = new Set(['host', ...admission.drop, ...Object.keys(admission.headers)]);
  if (admission.transformRequest) dropped.add('content-length');
  const kept: string[] = [];
  for (let i = 0; i < own.length; i += 2) {
    const [name = '', value = ''] = [own[i], own[i + 1]];
    if (!dropped.has(name.toLowerCase())) kept.push(name, value);
  }
  return [...kept, ...Object.entries(admission.headers).flat()];
}

function responseHeaders(raw: readonly (Buffer | string)[]): string[] {
  const rawHeaders = raw.map((part) => (typeof part === 'string' ? part : part.toString('latin1')));
  return endToEnd({ rawHeaders });
}

/** A request's body, after the streams that it passes through. It fails if one of them fails. */
function through(request: IncomingMessage, streams: readonly Transform[]): Readable {
  const last = streams.at(-1);
  if (last === undefined) return request;
  connected([request, ...streams], () => undefined);
  return last;
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

function answer(
  request: IncomingMessage,
  response: ServerResponse,
  refusal: Refusal,
  route: Route | undefined,
): void {
  // The rest of the request would be taken for the next one.
  response.shouldKeepAlive = false;
  request.resume();
  const { status, message } = refusal;
  const { headers = {}, body } = route?.describeRefusal(request, status, message) ?? {
    body: `${message}\n`,
  };
  response.writeHead(status, headers).end(body);
}

function describe(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return message || code || String(error);
}
