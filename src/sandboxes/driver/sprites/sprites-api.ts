import { setTimeout as delay } from 'node:timers/promises';
import { requireNotAborted, SandboxError } from '../../../supervisor/sandbox-error.js';
import type { SpritesAccess } from './options.js';
import { operationOf, SpritesStats } from './sprites-stats.js';

/** The most that is read of an answer. */
const MAX_ANSWER_BYTES = 16 * 1024 * 1024;
const ANSWER_MS = 60_000;
/** How long a request is repeated that the interface does not accept at the moment. */
const PATIENCE_MS = 60_000;
const FIRST_RETRY_MS = 250;
const MAX_RETRY_MS = 30_000;
const MAX_MESSAGE = 200;

/** An answer that is not a success. */
export class SpritesError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly retryAfterMs: number | undefined,
  ) {
    super(message);
  }

  /** The request may succeed later. */
  get isTemporary(): boolean {
    return this.status === 429 || this.status >= 500;
  }
}

export interface SpritesRequest {
  method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  /** Below `/v1/sprites`; its parts are encoded. */
  path: readonly string[];
  query?: readonly (readonly [string, string])[];
  json?: unknown;
  bytes?: Uint8Array;
  signal: AbortSignal;
  /** How long to repeat the request while it is refused or not answered. Repeating must be safe. */
  patienceMs?: number;
  /** Called with the reason for waiting. */
  onWait?: (error: SandboxError | SpritesError) => void;
}

/**
 * The vendor's HTTP interface. Requests that are refused for now, or get no answer, are repeated: rate limits and missing
 * capacity are normal there.
 */
export class SpritesApi {
  readonly stats = new SpritesStats();
  private closed = false;

  constructor(private readonly access: SpritesAccess) {}

  /**
   * @returns the body of a successful answer
   * @throws SpritesError for other answers; SandboxError `unavailable` if there is none, or `aborted`
   */
  async request(options: SpritesRequest): Promise<Buffer> {
    return this.patiently(options, () => this.once(options));
  }

  /** Requests are not repeated any more: creating a sprite would otherwise go on for as long as there is no room. */
  close(): void {
    this.closed = true;
  }

  /** Repeats work while the interface refuses it for now, or does not answer. */
  async patiently<T>(
    {
      signal,
      patienceMs = PATIENCE_MS,
      onWait,
    }: Pick<SpritesRequest, 'signal' | 'patienceMs' | 'onWait'>,
    work: () => Promise<T>,
  ): Promise<T> {
    const until = Date.now() + patienceMs;
    for (let wait = FIRST_RETRY_MS; ; wait = Math.min(wait * 2, MAX_RETRY_MS)) {
      requireNotAborted(signal);
      if (this.closed) throw new SandboxError('aborted', 'the driver is closed');
      let error: SandboxError | SpritesError;
      try {
        return await work();
      } catch (thrown) {
        if (!isTemporary(thrown)) throw thrown;
        error = thrown;
      }
      const asked = error instanceof SpritesError ? error.retryAfterMs : undefined;
      const pause = Math.min(asked ?? wait, MAX_RETRY_MS) * (1 + Math.random() / 4);
      if (Date.now() + pause > until) throw error;
      onWait?.(error);
      this.stats.noteWait(pause);
      await delay(pause, undefined, { signal }).catch(() => undefined);
    }
  }

  /** As {@link request}, for answers in JSON. */
  async json(options: SpritesRequest): Promise<Record<string, unknown>> {
    const body = await this.request(options);
    try {
      const value: unknown = JSON.parse(body.toString('utf8'));
      if (typeof value === 'object' && value !== null) return value as Record<string, unknown>;
    } catch {
      // Reported below.
    }
    throw new SandboxError('unavailable', `${this.host} answers with something else than JSON`);
  }

  /** The address of a WebSocket. */
  webSocketUrl(path: readonly string[], query: readonly (readonly [string, string])[]): URL {
    const url = this.url(path, query);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    return url;
  }

  get headers(): Record<string, string> {
    return { Authorization: `Bearer ${this.access.token}` };
  }

  /** For messages. */
  get host(): string {
    return new URL(this.access.baseUrl).host;
  }

  private url(path: readonly string[], query: SpritesRequest['query'] = []): URL {
    const below = path.map((part) => `/${encodeURIComponent(part)}`).join('');
    const url = new URL(`${this.access.baseUrl}/v1/sprites${below}`);
    for (const [name, value] of query) url.searchParams.append(name, value);
    return url;
  }

  private async once({
    method,
    path,
    query,
    json,
    bytes,
    signal,
  }: SpritesRequest): Promise<Buffer> {
    const body = json === undefined ? bytes : JSON.stringify(json);
    const type = json === undefined ? 'application/octet-stream' : 'application/json';
    const operation = operationOf(method, path);
    let status: number;
    let headers: Headers;
    let answer: Buffer;
    try {
      const response = await fetch(this.url(path, query), {
        method,
        headers: { ...this.headers, ...(body !== undefined && { 'Content-Type': type }) },
        ...(body !== undefined && { body }),
        signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]),
        // The token is for this host only.
        redirect: 'error',
      });
      ({ status, headers } = response);
      answer = await readAll(response);
    } catch (error) {
      requireNotAborted(signal);
      this.stats.noteAnswer(operation, undefined);
      if (error instanceof SandboxError) throw error;
      const { cause } = error as { cause?: { code?: string } };
      const why = cause?.code ?? (error as Error).name;
      throw new SandboxError('unavailable', `${this.host} does not answer (${why})`, {
        cause: error,
      });
    }
    this.stats.noteAnswer(operation, status);
    if (status >= 200 && status < 300) return answer;
    throw errorOf(status, headers, answer);
  }
}

/** Whether the request may succeed if it is repeated. */
function isTemporary(error: unknown): error is SandboxError | SpritesError {
  if (error instanceof SpritesError) return error.isTemporary;
  return error instanceof SandboxError && error.kind === 'unavailable';
}

async function readAll(response: Response): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of response.body ?? []) {
    bytes += piece.length;
    if (bytes > MAX_ANSWER_BYTES) throw new SandboxError('failed', 'the answer is too long');
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/** Reads the vendor's error format. Anything else is shown as it is, up to a length. */
function errorOf(status: number, headers: Headers, body: Buffer): SpritesError {
  const text = body.toString('utf8');
  let said: { error?: unknown; code?: unknown; message?: unknown; retry_after_seconds?: unknown } =
    {};
  try {
    said = (JSON.parse(text) as typeof said | null) ?? {};
  } catch {
    // An error of something in between, such as a proxy.
  }
  const code = [said.code, said.error].find((each) => typeof each === 'string') ?? '';
  const message = typeof said.message === 'string' ? said.message : text;
  const seconds = Number(said.retry_after_seconds ?? headers.get('retry-after') ?? Number.NaN);
  const retryAfterMs = seconds > 0 ? seconds * 1000 : undefined;
  const shown = message.slice(0, MAX_MESSAGE).replaceAll('\0', '').toWellFormed();
  return new SpritesError(status, code, shown || `status ${status}`, retryAfterMs);
}
