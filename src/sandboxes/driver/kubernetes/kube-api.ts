import { Agent, request as httpsRequest } from 'node:https';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { requireNotAborted, SandboxError } from '../../../supervisor/sandbox-error.js';
import type { ClusterAccess } from './cluster-access.js';
import { KubeStats } from './kube-stats.js';

/** The most that is read of an answer. Bytes. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
const ANSWER_MS = 30_000;
/** How long a request is repeated that the API server does not accept at the moment. */
const PATIENCE_MS = 60_000;
const FIRST_RETRY_MS = 200;
const MAX_RETRY_MS = 5_000;
const MAX_SOCKETS = 64;
const MAX_MESSAGE = 400;

/** An answer that is not a success. */
export class KubeError extends Error {
  constructor(
    readonly status: number,
    /** The reason of the API server in one word, such as `NotFound`. */
    readonly reason: string,
    message: string,
    readonly retryAfterMs?: number,
  ) {
    super(message);
  }

  /** The request may succeed later. */
  get isTemporary(): boolean {
    return this.status === 429 || this.status >= 500;
  }
}

export interface KubeRequest {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Absolute, with encoded parts. */
  path: string;
  query?: Readonly<Record<string, string>>;
  body?: unknown;
  /** Default: JSON. */
  contentType?: string;
  signal: AbortSignal;
  /** How long to repeat the request while it is refused for now or not answered. Repeating must be safe. */
  patienceMs?: number;
}

/** A connection to the API server: JSON over HTTPS, with the credentials that apply now. */
export class KubeApi {
  readonly stats = new KubeStats();
  private readonly agent: Agent;

  constructor(readonly access: ClusterAccess) {
    this.agent = new Agent({ keepAlive: true, maxSockets: MAX_SOCKETS, ...this.tls() });
  }

  /** For messages. */
  get host(): string {
    return new URL(this.access.server).host;
  }

  /**
   * @returns the answer
   * @throws KubeError for answers that are no success; SandboxError `unavailable` if there is none, or `aborted`
   */
  async request<T>(options: KubeRequest): Promise<T> {
    const until = Date.now() + (options.patienceMs ?? PATIENCE_MS);
    for (let wait = FIRST_RETRY_MS; ; wait = Math.min(wait * 2, MAX_RETRY_MS)) {
      requireNotAborted(options.signal);
      try {
        return await this.once<T>(options);
      } catch (error) {
        requireNotAborted(options.signal);
        const isTemporary =
          error instanceof KubeError
            ? error.isTemporary
            : error instanceof SandboxError && error.kind === 'unavailable';
        const asked = error instanceof KubeError ? error.retryAfterMs : undefined;
        const pause = Math.min(asked ?? wait, MAX_RETRY_MS) * (1 + Math.random() / 4);
        if (!isTemporary || Date.now() + pause > until) throw error;
        await delay(pause, undefined, { signal: options.signal }).catch(() => undefined);
      }
    }
  }

  /** What a WebSocket to the API server is opened with. */
  async socketOptions(): Promise<Record<string, unknown> & { headers: Record<string, string> }> {
    const { cert, key } = await this.access.credentials();
    return { ...this.tls(), cert, key, headers: await this.headers() };
  }

  /** The address of a WebSocket. */
  socketUrl(path: string, query: readonly (readonly [string, string])[]): URL {
    const url = new URL(this.access.server + path);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    for (const [name, value] of query) url.searchParams.append(name, value);
    return url;
  }

  /** Closes idle connections. */
  close(): void {
    this.agent.destroy();
  }

  private tls() {
    const { ca, isInsecure, serverName } = this.access;
    return {
      ...(ca && { ca }),
      rejectUnauthorized: !isInsecure,
      ...(serverName !== undefined && { servername: serverName }),
    };
  }

  private async headers(): Promise<Record<string, string>> {
    const { token } = await this.access.credentials();
    return token === undefined ? {} : { authorization: `Bearer ${token}` };
  }

  private async once<T>(options: KubeRequest): Promise<T> {
    const { method, path } = options;
    const operation = operationOf(method, path);
    let answer: { response: IncomingMessage; body: Buffer };
    try {
      answer = await this.send(options);
    } catch (error) {
      this.stats.noteAnswer(operation, undefined);
      if (error instanceof SandboxError) throw error;
      const why = (error as { code?: string }).code ?? (error as Error).message;
      throw new SandboxError(
        'unavailable',
        `the API server of Kubernetes at ${this.host} does not answer (${why})`,
        { cause: error },
      );
    }
    const { response, body } = answer;
    const { statusCode: status = 500 } = response;
    this.stats.noteAnswer(operation, status);
    if (status >= 200 && status < 300) return JSON.parse(body.toString('utf8')) as T;
    throw errorOf(status, response.headers['retry-after'], body);
  }

  private async send(options: KubeRequest): Promise<{ response: IncomingMessage; body: Buffer }> {
    const { method, path, query = {}, body, contentType = 'application/json' } = options;
    const url = new URL(this.access.server + path);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    const isSecure = url.protocol === 'https:';
    const credentials = await this.access.credentials();
    const signal = AbortSignal.any([options.signal, AbortSignal.timeout(ANSWER_MS)]);
    const headers = {
      ...(await this.headers()),
      accept: 'application/json',
      ...(body !== undefined && { 'content-type': contentType }),
    };
    return new Promise((resolve, reject) => {
      const { cert, key } = credentials;
      const sent = isSecure
        ? httpsRequest(url, { method, headers, signal, agent: this.agent, cert, key })
        : httpRequest(url, { method, headers, signal });
      sent.once('error', reject);
      sent.once('response', (response) => {
        readAll(response).then((read) => resolve({ response, body: read }), reject);
      });
      sent.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }
}

async function readAll(response: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of response as AsyncIterable<Buffer>) {
    bytes += piece.length;
    if (bytes > MAX_ANSWER_BYTES) throw new SandboxError('failed', 'the answer is too long');
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/** Reads the Status object of the API server. Anything else is shown as it is, up to a length. */
export function errorOf(status: number, retryAfter: string | undefined, body: Buffer): KubeError {
  let said: { reason?: unknown; message?: unknown } = {};
  const text = body.toString('utf8');
  try {
    said = (JSON.parse(text) as typeof said | null) ?? {};
  } catch {
    // An error of something in between, such as a proxy.
  }
  const message = typeof said.message === 'string' ? said.message : text;
  const shown = message.slice(0, MAX_MESSAGE).replaceAll('\0', '').toWellFormed().trim();
  const seconds = Number(retryAfter ?? Number.NaN);
  return new KubeError(
    status,
    typeof said.reason === 'string' ? said.reason : '',
    shown || `status ${status}`,
    seconds > 0 ? seconds * 1000 : undefined,
  );
}

/** What a request does, for metrics: the method and the kind of object. */
function operationOf(method: string, path: string): string {
  const parts = path.split('/');
  const namespaces = parts.indexOf('namespaces');
  const kind = namespaces < 0 ? parts.at(-1) : (parts[namespaces + 2] ?? 'namespaces');
  return `${method.toLowerCase()} ${kind}`;
}
