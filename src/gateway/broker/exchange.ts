import type { ServerResponse } from 'node:http';
import type { Grant } from '../grants.js';
import type { GrantRefusal, Refusal } from './route.js';

/** What agents reach through the broker: the APIs of model providers, git servers and tool servers. */
export const SERVICES = ['anthropic', 'openai', 'google', 'git', 'mcp', 'unknown'] as const;
export type Service = (typeof SERVICES)[number];

/** What can go wrong with a request that was forwarded. */
export const UPSTREAM_ERRORS = [
  'unauthorized',
  'rate_limited',
  'server_error',
  'no_answer',
  'interrupted',
] as const;
export type UpstreamError = (typeof UPSTREAM_ERRORS)[number];

/** One finished request, for the audit log. Never has a body or a secret. */
export interface Exchange {
  kind: Grant['kind'] | 'unknown';
  /** What the request is for. */
  service: Service;
  /** The holder of the grant, also of a refused one. */
  session: string | undefined;
  turn: string | undefined;
  user: string | undefined;
  /** The sandbox that sent the request; `null` if that is unknown. */
  sandbox: string | null;
  method: string;
  /** Without its query. */
  target: string;
  status: number;
  /** Why the gateway refused it; absent for a request that was forwarded. */
  refused?: string;
  /** The same in one word, if it was because of the grant. */
  reason?: GrantRefusal;
  /** Why a forwarded request has no complete response. `cancelled`: its client disconnected. */
  failed?: Extract<UpstreamError, 'no_answer' | 'interrupted'> | 'cancelled';
  /** The error of the connection to the upstream. */
  error?: string;
  /** From the request's head to the end of the response. */
  durationMs: number;
  /** The upstream's part until its response began. */
  upstreamMs?: number;
  /** The gateway's own part until the response began. */
  addedMs?: number;
}

export function serviceOf(path: string): Service {
  const [, name] = path.split('/', 2);
  return SERVICES.find((service) => service === name) ?? 'unknown';
}

export function noteGrant(exchange: Exchange, grant: Grant | undefined): void {
  exchange.kind = grant?.kind ?? 'unknown';
  exchange.session = grant?.session;
  exchange.turn = grant?.turn;
  exchange.user = grant?.user;
}

export function noteRefusal(exchange: Exchange, { message, because }: Refusal): void {
  exchange.refused = message;
  if (because === undefined) return;
  exchange.reason = because.reason;
  noteGrant(exchange, because.grant);
}

/** Why a request that was forwarded failed. Must be called before the response is ended. */
export function failureOf(
  error: unknown,
  response: ServerResponse,
): NonNullable<Exchange['failed']> {
  if (!response.headersSent) return response.destroyed ? 'cancelled' : 'no_answer';
  const { name, code } = error as NodeJS.ErrnoException;
  const isClient = name === 'AbortError' || code === 'ERR_STREAM_PREMATURE_CLOSE';
  return isClient ? 'cancelled' : 'interrupted';
}
