import { request } from 'node:http';
import type { ValidationItem } from '../../src/common/errors.js';

/** An answer, read to its end. */
export interface Answer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  /** As it came. */
  text: string;
  /** Parsed; `undefined` when it is no JSON. */
  body: AnswerBody;
}

/** A JSON answer. The members that most tests look into have their types; a test knows which of them are there. */
export interface AnswerBody {
  id: string;
  name: string | null;
  status: string;
  version: number;
  created_at: string;
  updated_at: string;
  archived_at: string | null;
  /** Of lists. */
  data: AnswerBody[];
  /** A sentence, or the items of a 422. */
  detail: string & ValidationItem[];
  [member: string]: unknown;
}

export interface Sending {
  headers?: Record<string, string>;
  /** Sent as it is; takes the place of `json`. */
  raw?: string | Buffer;
  /** Without a Content-Length. */
  chunked?: boolean;
}

/**
 * Speaks HTTP over real sockets, one connection a request, and never fixes what it is given: `fetch` refuses some of
 * what a test has to send.
 */
export class HttpClient {
  constructor(
    readonly url: string,
    private readonly token?: string,
  ) {}

  get(path: string, sending?: Sending): Promise<Answer> {
    return this.send('GET', path, undefined, sending);
  }

  post(path: string, json?: unknown, sending?: Sending): Promise<Answer> {
    return this.send('POST', path, json, sending);
  }

  put(path: string, json?: unknown, sending?: Sending): Promise<Answer> {
    return this.send('PUT', path, json, sending);
  }

  delete(path: string): Promise<Answer> {
    return this.send('DELETE', path);
  }

  /** @param json sent as `application/json` unless it is `undefined`. */
  send(method: string, path: string, json?: unknown, sending: Sending = {}): Promise<Answer> {
    const { hostname, port } = new URL(this.url);
    const body = sending.raw ?? (json === undefined ? undefined : JSON.stringify(json));
    const headers: Record<string, string | number> = {
      ...(this.token !== undefined && { authorization: `Bearer ${this.token}` }),
      ...(body !== undefined && {
        'content-type': 'application/json',
        ...(!sending.chunked && { 'content-length': Buffer.byteLength(body) }),
      }),
      ...sending.headers,
    };
    return new Promise((resolve, reject) => {
      const outgoing = request(
        { hostname, port, method, path, headers, agent: false },
        (incoming) => {
          const chunks: Buffer[] = [];
          incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
          incoming.on('error', reject);
          incoming.on('end', () => {
            const text = Buffer.concat(chunks).toString('utf8');
            resolve({
              status: incoming.statusCode ?? 0,
              headers: incoming.headers,
              text,
              body: parse(text),
            });
          });
        },
      );
      outgoing.on('error', reject);
      outgoing.end(body);
    });
  }
}

function parse(text: string): AnswerBody {
  try {
    return JSON.parse(text) as AnswerBody;
  } catch {
    return undefined as unknown as AnswerBody;
  }
}
