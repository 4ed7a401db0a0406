import {
  Agent,
  createServer,
  request as sendRequest,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import { normalizeHostName } from '../../common/host-pattern.js';
import { DialError, reset } from '../../gateway/egress/connections.js';
import { endToEnd } from '../../gateway/http-headers.js';
import type { Socket } from 'node:net';

/** One client's connection on port 80, with its destination. */
export interface HttpClient {
  /** The host that each request must name. */
  host: string;
  /** Connects to that host, and owns the connection. @throws DialError */
  connect: () => Promise<Socket>;
  /** Records why the client is refused. */
  refused: (why: string) => void;
}

interface Connection extends HttpClient {
  agent: Agent;
  /** Requests without a complete response. */
  open: number;
  waiting: NodeJS.Timeout | undefined;
}

const MAX_HEAD_BYTES = 32_768;
const HEAD_TIMEOUT_MS = 30_000;
const KEEP_ALIVE_MS = 60_000;
const IDLE_MS = 60 * 60 * 1000;
/** More than any client pipelines. Each waiting request costs memory. */
const MAX_OPEN_REQUESTS = 32;

/**
 * Serves port 80 if the policy has a list of hosts. It is a proxy that reads every request on a connection, so that
 * each one names the connection's host. Requests are serialised again from the parsed ones, so the server sees only
 * requests that were checked. Ambiguous requests are refused: what Node's strict parser rejects, `Content-Length`
 * together with `Transfer-Encoding`, several hosts, and `CONNECT`. Upgrades are not forwarded: the server answers as if
 * there was none.
 */
export class HttpGate {
  private readonly server: Server;
  private readonly connections = new WeakMap<Socket, Connection>();

  constructor() {
    this.server = createServer(
      { maxHeaderSize: MAX_HEAD_BYTES, insecureHTTPParser: false, keepAliveTimeout: KEEP_ALIVE_MS },
      (request, response) => this.serveRequest(request, response),
    );
    this.server.timeout = IDLE_MS;
    this.server.on('connect', (request: IncomingMessage) =>
      this.refuse(request.socket, 'a request to be a proxy'),
    );
    this.server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
      if (error.code === 'ECONNRESET') return reset(socket as Socket);
      const tooLong = error.code === 'HPE_HEADER_OVERFLOW';
      this.refuse(socket as Socket, tooLong ? 'the request head is too long' : 'not HTTP');
    });
  }

  /** Takes over a paused connection. */
  serve(socket: Socket, client: HttpClient): void {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    agent.createConnection = (_options, created): undefined => {
      client.connect().then(
        (upstream) => {
          // A server that closed an idle connection accepts no more requests on it.
          upstream.once('end', () => setImmediate(() => upstream.destroy()));
          created?.(null, upstream);
          // Connections through the egress are paused, and by then their reader is attached.
          setImmediate(() => upstream.resume());
        },
        (error: unknown) => created?.(error as Error, undefined as never),
      );
    };
    const connection: Connection = { ...client, agent, open: 0, waiting: undefined };
    this.connections.set(socket, connection);
    socket.once('close', () => {
      clearTimeout(connection.waiting);
      agent.destroy();
    });
    this.awaitHead(socket, connection, HEAD_TIMEOUT_MS);
    this.server.emit('connection', socket);
    socket.resume();
  }

  private serveRequest(request: IncomingMessage, response: ServerResponse): void {
    const { socket } = request;
    const connection = this.connections.get(socket);
    if (connection === undefined) return reset(socket);
    clearTimeout(connection.waiting);
    connection.open += 1;
    response.once('close', () => {
      connection.open -= 1;
      if (connection.open === 0) this.awaitHead(socket, connection, KEEP_ALIVE_MS);
    });
    const why =
      connection.open > MAX_OPEN_REQUESTS
        ? 'too many requests at once'
        : refusalOf(request, connection.host);
    if (why !== undefined) return this.refuse(socket, why);
    try {
      this.forward(request, response, connection);
    } catch (error) {
      // Node accepts some targets and headers when parsing that it rejects when writing.
      this.refuse(socket, `a malformed request: ${(error as Error).message}`);
    }
  }

  private forward(request: IncomingMessage, response: ServerResponse, { agent }: Connection): void {
    const { socket, method = 'GET' } = request;
    const upstream = sendRequest({
      agent,
      method,
      path: pathOf(request.url ?? '/'),
      headers: [...endToEnd(request), ...framingOf(request)],
      setHost: false,
    });
    const fail = (error: Error): void => {
      if (error instanceof DialError && error.kind === 'refused')
        this.refuse(socket, error.message);
      else reset(socket);
    };
    upstream.once('error', fail);
    upstream.once('response', (answer) => {
      answer.once('error', fail);
      response.sendDate = false;
      // Data after a request for another protocol may not be a request.
      if (request.headers.upgrade !== undefined) response.shouldKeepAlive = false;
      try {
        response.writeHead(answer.statusCode ?? 502, answer.statusMessage, endToEnd(answer));
      } catch (error) {
        return fail(error as Error);
      }
      // The head of an event stream must not wait for its first event.
      response.flushHeaders();
      answer.pipe(response);
    });
    response.once('close', () => {
      if (!response.writableFinished) upstream.destroy();
    });
    request.pipe(upstream);
  }

  private awaitHead(socket: Socket, connection: Connection, ms: number): void {
    clearTimeout(connection.waiting);
    if (socket.destroyed) return;
    connection.waiting = setTimeout(() => {
      if (ms === HEAD_TIMEOUT_MS) this.refuse(socket, 'the first request took too long');
      else socket.end();
    }, ms);
  }

  private refuse(socket: Socket, why: string): void {
    const connection = this.connections.get(socket);
    // Recorded once, although all other requests of the client are refused with it.
    this.connections.delete(socket);
    connection?.refused(why);
    reset(socket);
  }
}

/** The reason why a request must not be forwarded to a host; `undefined` if it may. */
export function refusalOf(
  request: Pick<IncomingMessage, 'method' | 'url' | 'rawHeaders'>,
  host: string,
): string | undefined {
  const values = (wanted: string): string[] =>
    request.rawHeaders.filter((_, i, all) => i % 2 === 1 && all[i - 1]?.toLowerCase() === wanted);
  const [claimed, ...others] = values('host');
  if (claimed === undefined) return 'no Host header';
  if (others.length > 0) return 'several Host headers';
  const name = withoutPort(claimed);
  if (normalizeHostName(name) !== host)
    return `the client asked it for another host: ${name.slice(0, 100)}`;
  const lengths = values('content-length');
  const codings = values('transfer-encoding');
  if (lengths.length + codings.length > 1) return 'a request of two lengths';
  if (codings.length > 0 && codings[0]?.toLowerCase() !== 'chunked')
    return 'an unknown transfer coding';
  const { url = '' } = request;
  if (url.startsWith('/') || (url === '*' && request.method === 'OPTIONS')) return undefined;
  const authority = /^http:\/\/([^/?#@\\]*)(?=$|[/?#])/i.exec(url)?.[1];
  return authority !== undefined && normalizeHostName(withoutPort(authority)) === host
    ? undefined
    : 'another host in the target';
}

function withoutPort(authority: string): string {
  return authority.trim().replace(/:\d*$/, '');
}

/** The request target in the form for servers instead of proxies. */
function pathOf(target: string): string {
  const rest = target.replace(/^http:\/\/[^/?#]*/i, '');
  return rest.startsWith('/') || rest === '*' ? rest : `/${rest}`;
}

/** The headers that define the length of a request's body; `Content-Length` is forwarded unchanged. */
function framingOf({ method = '', rawHeaders, headers }: IncomingMessage): string[] {
  if (headers['transfer-encoding'] !== undefined) return ['Transfer-Encoding', 'chunked'];
  const hasLength = rawHeaders.some((name, i) => i % 2 === 0 && /^content-length$/i.test(name));
  return !hasLength && ['POST', 'PUT', 'PATCH'].includes(method) ? ['Content-Length', '0'] : [];
}
