import createClient, { type Middleware } from 'openapi-fetch';
import type { components, paths } from './schema.js';

export type Schemas = components['schemas'];
export type Session = Schemas['Session'];
export type Turn = Schemas['Turn'];
export type Agent = Schemas['Agent'];

/** The service's address, with a slash at the end: the page's base without `console/`. */
const ROOT = new URL('..', document.baseURI).href;
const PREFIX =
  document.querySelector<HTMLMetaElement>('meta[name="api-prefix"]')?.content.replace(/^\//, '') ??
  '';
/** Where the interface is, without a slash at the end. */
export const API_ROOT = new URL(PREFIX, ROOT).href.replace(/\/$/, '');
/** Where the console signs in and out. */
export const SIGN_IN_URL = new URL('console/session', ROOT).href;
/** The path of the console without a slash at the end, for the router. */
export const CONSOLE_PATH = new URL('.', document.baseURI).pathname.replace(/\/$/, '');

/** A request that was refused, or that did not arrive (`status` 0). The message is for people. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly requestId: string | null = null,
  ) {
    super(message);
  }
}

let signedOut: () => void = () => undefined;
/** Calls the listener when a request shows that the cookie is no longer accepted. */
export function onSignedOut(listener: () => void): void {
  signedOut = listener;
}

/** @returns the error that a response stands for. */
export async function errorOf(response: Response): Promise<ApiError> {
  if (response.status === 401) signedOut();
  const answer = (await response.json().catch(() => undefined)) as { detail?: unknown } | undefined;
  return new ApiError(
    sentence(answer?.detail) ?? `The service answered ${response.status}`,
    response.status,
    response.headers.get('x-request-id'),
  );
}

/** `detail` is a sentence, or for a 422 a list of what is wrong where. */
function sentence(detail: unknown): string | undefined {
  if (typeof detail === 'string') return detail;
  if (!Array.isArray(detail)) return undefined;
  return (detail as { loc: (string | number)[]; msg: string }[])
    .map(({ loc, msg }) => `${loc.slice(1).join('.')}: ${msg}`)
    .join('\n');
}

const raiseErrors: Middleware = {
  onResponse: async ({ response }) => {
    if (!response.ok) throw await errorOf(response);
  },
  onError: ({ error }) =>
    error instanceof ApiError || (error as Error).name === 'AbortError'
      ? undefined
      : new ApiError('The service cannot be reached', 0),
};

/** The interface, as its OpenAPI document describes it. Every refusal is thrown as an {@link ApiError}. */
export const api = createClient<paths>({ baseUrl: API_ROOT, credentials: 'same-origin' });
api.use(raiseErrors);

/** Takes the body out of an answer of {@link api}, which throws where there is none. */
export async function body<T>(answer: Promise<{ data?: T }>): Promise<T> {
  const { data } = await answer;
  if (data === undefined) throw new ApiError('The service sent an empty answer', 0);
  return data;
}

/** The first bytes of an answer's body, at most this many. The rest is not received. */
export async function startOf(response: Response, most: number): Promise<Uint8Array> {
  const reader = response.body?.getReader();
  if (!reader) return new Uint8Array();
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  for (let read = 0; read < most;) {
    const { value, done } = await reader.read();
    if (done) break;
    chunks.push(value);
    read += value.length;
  }
  await reader.cancel();
  return new Uint8Array(await new Blob(chunks).arrayBuffer()).subarray(0, most);
}

/** Who is signed in; nobody is `null`. */
export interface SignedIn {
  user: { name: string; operator: boolean } | null;
}

/** `GET`: who is signed in; `POST`: sign in with a token; `DELETE`: sign out. */
export async function signIn(method: 'GET' | 'POST' | 'DELETE', token?: string): Promise<SignedIn> {
  let response: Response;
  try {
    response = await fetch(SIGN_IN_URL, {
      method,
      ...(token !== undefined && {
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ token }),
      }),
    });
  } catch {
    throw new ApiError('The service cannot be reached', 0);
  }
  if (!response.ok) throw await errorOf(response);
  return (await response.json()) as SignedIn;
}
