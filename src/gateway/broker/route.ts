import type { IncomingMessage } from 'node:http';
import type { Transform } from 'node:stream';
import type { Grant, ModelGrant } from '../grants.js';

/** Why a grant is refused, in one word for metrics and the log. */
export const GRANT_REFUSALS = [
  'missing',
  'invalid',
  'wrong_kind',
  'wrong_sandbox',
  'expired',
  'wrong_target',
] as const;
export type GrantRefusal = (typeof GRANT_REFUSALS)[number];

/** A request that the gateway does not forward. */
export class Refusal extends Error {
  override readonly name = 'Refusal';

  constructor(
    readonly status: number,
    message: string,
    /** If the grant is the reason: why, and the grant if it could be opened. */
    readonly because?: { reason: GrantRefusal; grant?: Grant },
  ) {
    super(message);
  }
}

/** Opens a grant and checks that it is valid for the kind, the sandbox and the time. @throws Refusal */
export type CheckGrant = <K extends Grant['kind']>(
  text: string,
  kind: K,
  sandbox: string | null,
) => Extract<Grant, { kind: K }>;

/** The head of an upstream's response; a transformation may change it. */
export interface Reply {
  status: number;
  /** Names and values alternating. */
  headers: string[];
}

/** How to forward a request. */
export interface Admission {
  url: URL;
  /** The grant that the request came with, for the log. */
  grant: Grant;
  /** Lower-case names of the client's headers to leave out. */
  drop: readonly string[];
  /** Headers to set, with lower-case names. */
  headers: Readonly<Record<string, string>>;
  /** Streams for the response's body to pass through. */
  transform?: (reply: Reply) => Transform[];
  /** Streams for the request's body to pass through; it is then sent without its length. */
  transformRequest?: () => Transform[];
  /** The grant of a request whose usage is counted, and which is refused if its turn is over budget. */
  metered?: ModelGrant;
}

/** One kind of service behind the gateway. */
export interface Route {
  /** @param path the request's path without its query */
  matches(path: string): boolean;
  /** @param sandbox the sandbox that sent the request. @throws Refusal */
  admit(request: IncomingMessage, sandbox: string | null): Admission;
  /** The answer to a refused request, in the format that the client understands. */
  describeRefusal(
    request: IncomingMessage,
    status: number,
    message: string,
  ): { headers?: Record<string, string>; body: string };
}

/** Headers with which clients authenticate; none of them is ever forwarded with one of our credentials. */
export const CREDENTIAL_HEADERS: readonly string[] = [
  'authorization',
  'cookie',
  'x-api-key',
  'x-goog-api-key',
  'api-key',
];

/** The value of a header in a reply. @param name in lower case */
export function headerOf({ headers }: Reply, name: string): string | undefined {
  const at = headers.findIndex((part, i) => i % 2 === 0 && part.toLowerCase() === name);
  return at < 0 ? undefined : headers[at + 1];
}

/** Removes a header from a reply. @param name in lower case */
export function removeHeader(reply: Reply, name: string): void {
  reply.headers = reply.headers.filter((_, i, all) => all[i - (i % 2)]?.toLowerCase() !== name);
}
