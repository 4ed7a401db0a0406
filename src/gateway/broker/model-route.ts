import type { IncomingMessage } from 'node:http';
import { KEY_PREFIXES, type GrantedApi, type ModelGrant } from '../grants.js';
import type { UsageFeed } from '../usage/feed.js';
import { askForUsage } from '../usage/usage-request.js';
import {
  CREDENTIAL_HEADERS,
  Refusal,
  type Admission,
  type CheckGrant,
  type Route,
} from './route.js';

interface ProviderApi {
  /** The requests that agent programs need, as method and path without the API's own prefix. */
  allowed: readonly RegExp[];
  /** The header in which the upstream expects the key. */
  authenticate: (key: string) => Record<string, string>;
  /** The requests whose responses report usage. */
  metered: RegExp;
  error: (status: number, message: string) => unknown;
}

/** Unlike 429, the providers' clients do not repeat a request that was refused with it. */
const OVER_BUDGET = 402;

const ANTHROPIC_ERRORS: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  [OVER_BUDGET]: 'billing_error',
  429: 'rate_limit_error',
  503: 'api_error',
};
const OPENAI_CODES: Readonly<Record<number, string>> = {
  401: 'invalid_api_key',
  [OVER_BUDGET]: 'insufficient_quota',
  429: 'rate_limit_exceeded',
  503: 'server_error',
};
const GOOGLE_STATUSES: Readonly<Record<number, string>> = {
  401: 'UNAUTHENTICATED',
  [OVER_BUDGET]: 'RESOURCE_EXHAUSTED',
  429: 'RESOURCE_EXHAUSTED',
  503: 'UNAVAILABLE',
};

const APIS: Readonly<Record<GrantedApi, ProviderApi>> = {
  anthropic: {
    allowed: [/^POST \/v1\/messages(\/count_tokens)?$/, /^GET \/v1\/models(\/[\w.:-]+)?$/],
    authenticate: (key) => ({ 'x-api-key': key }),
    metered: /^\/v1\/messages$/,
    error: (status, message) => ({
      type: 'error',
      error: { type: ANTHROPIC_ERRORS[status] ?? 'permission_error', message },
    }),
  },
  openai: {
    allowed: [
      /^POST \/v1\/(responses(\/compact)?|chat\/completions)$/,
      /^GET \/v1\/models(\/[\w.:-]+)?$/,
    ],
    authenticate: (key) => ({ authorization: `Bearer ${key}` }),
    metered: /^\/v1\/(responses(\/compact)?|chat\/completions)$/,
    error: (status, message) => ({
      error: {
        message,
        type: status === OVER_BUDGET ? 'insufficient_quota' : 'invalid_request_error',
        param: null,
        code: OPENAI_CODES[status] ?? 'request_not_allowed',
      },
    }),
  },
  google: {
    allowed: [
      /^POST \/v1(beta|alpha)?\/models\/[\w.-]+:(generateContent|streamGenerateContent|countTokens|embedContent)$/,
      /^GET \/v1(beta|alpha)?\/models(\/[\w.-]+)?$/,
    ],
    authenticate: (key) => ({ 'x-goog-api-key': key }),
    metered: /:(generateContent|streamGenerateContent|embedContent)$/,
    error: (status, message) => ({
      error: { code: status, message, status: GOOGLE_STATUSES[status] ?? 'PERMISSION_DENIED' },
    }),
  },
};

const PATH = /^\/(anthropic|openai|google)(\/.*)$/s;

/** Model APIs, as `/<api>/<path of the API>`. The grant stands in place of the key. */
export class ModelRoute implements Route {
  constructor(
    private readonly check: CheckGrant,
    private readonly usage?: Pick<UsageFeed, 'blockOf' | 'isFull'>,
  ) {}

  matches(path: string): boolean {
    return PATH.test(path);
  }

  admit(request: IncomingMessage, sandbox: string | null): Admission {
    const { api, path, query } = parse(request);
    const grant = this.check(keyOf(request, api, query), 'model', sandbox);
    const refused = { reason: 'wrong_target', grant } as const;
    if (grant.api !== api)
      throw new Refusal(403, `The grant is for the API of ${grant.api}`, refused);
    const { allowed, authenticate, metered } = APIS[api];
    const wanted = `${request.method ?? ''} ${path}`;
    if (!allowed.some((pattern) => pattern.test(wanted)))
      throw new Refusal(403, `The gateway does not forward ${wanted.slice(0, 200)}`, refused);
    const isMetered = metered.test(path);
    if (isMetered) this.requireBudget(grant);
    query.delete('key');
    const url = new URL(versioned(api, grant.url, path));
    url.search = query.toString();
    return {
      url,
      grant,
      drop: CREDENTIAL_HEADERS,
      // Usage is read from the response as it passes, so it must not be compressed.
      headers: { 'accept-encoding': 'identity', ...authenticate(grant.key) },
      ...(isMetered && { metered: grant }),
      ...(path.endsWith('/chat/completions') && { transformRequest: () => [askForUsage('chat')] }),
      ...(path.endsWith('/responses') && { transformRequest: () => [askForUsage('responses')] }),
    };
  }

  describeRefusal(request: IncomingMessage, status: number, message: string) {
    const body = JSON.stringify(APIS[parse(request).api].error(status, message));
    return { headers: { 'Content-Type': 'application/json' }, body };
  }

  /** @throws Refusal if the turn is over budget, or its usage cannot be recorded */
  private requireBudget({ turn }: ModelGrant): void {
    const blocked = this.usage?.blockOf(turn);
    if (blocked !== undefined) throw new Refusal(OVER_BUDGET, blocked);
    if (this.usage?.isFull === true)
      throw new Refusal(503, 'The gateway has no room to record usage; no worker reads it');
  }
}

function parse({ url = '/' }: IncomingMessage) {
  const [target = '', ...search] = url.split('?');
  const [, api = 'openai', path = '/'] = PATH.exec(target) ?? [];
  return { api: api as GrantedApi, path, query: new URLSearchParams(search.join('?')) };
}

/** By convention, an address of OpenAI's API that has a path includes the version. */
function versioned(api: GrantedApi, base: string, path: string): string {
  const isWhole = api === 'openai' && new URL(base).pathname !== '/';
  return base.replace(/\/$/, '') + (isWhole ? path.replace(/^\/v1(?=\/)/, '') : path);
}

function keyOf({ headers }: IncomingMessage, api: GrantedApi, query: URLSearchParams): string {
  const named = api === 'google' ? headers['x-goog-api-key'] : headers['x-api-key'];
  const bearer = /^Bearer\s+(\S+)$/i.exec(headers.authorization ?? '')?.[1];
  const key = (typeof named === 'string' ? named : undefined) ?? bearer ?? query.get('key') ?? '';
  const prefix = KEY_PREFIXES[api];
  return key.startsWith(prefix) ? key.slice(prefix.length) : key;
}
