import type { Command } from 'commander';
import {
  conflict,
  DomainError,
  type DomainErrorKind,
  notFound,
  unauthorized,
} from '../common/errors.js';
import { isUuid } from '../common/storable.js';
import { tokenOption, Unreachable, urlArgument, usageError } from './command-line.js';
import { Option } from 'commander';

const DEFAULT_URL = 'http://127.0.0.1:8080';
/** What is read of an answer that reports an error. Characters. */
const MAX_DETAIL = 1_000;
const KINDS: Record<number, DomainErrorKind> = {
  400: 'bad_request',
  413: 'too_large',
  422: 'unprocessable',
};

export interface ServiceOptions {
  url: string;
  token?: string;
}

/** Adds the options of commands that call the service over HTTP. */
export function callsService(command: Command): Command {
  const url = new Option('--url <address>', 'the address of the service')
    .env('AGENT_SESSIONS_URL')
    .default(DEFAULT_URL)
    .argParser(urlArgument);
  return command.addOption(url).addOption(tokenOption());
}

type RequestOptions = Omit<RequestInit, 'headers'> & {
  headers?: Record<string, string>;
  /** For bodies that are sent while they are read. */
  duplex?: 'half';
};

/** Calls the service as the owner of a token. */
export class ServiceClient {
  private readonly token: string;

  /** @throws CommanderError without a token */
  constructor(private readonly options: ServiceOptions) {
    const { token } = options;
    if (!token) throw usageError('the token is missing: use --token or AGENT_SESSIONS_TOKEN');
    this.token = token;
  }

  /**
   * Sends a request for a session.
   * @param route of the session, such as `/files`
   * @throws DomainError with the sentence of the service; Unreachable
   */
  async call(
    session: string,
    route: string,
    query: Record<string, string | undefined>,
    init: RequestOptions = {},
  ): Promise<Response> {
    if (!isUuid(session)) {
      throw notFound(`There is no session with the id ${JSON.stringify(session)}`);
    }
    const { url } = this.options;
    const given = Object.entries(query).filter((entry): entry is [string, string] => !!entry[1]);
    const parameters = new URLSearchParams(given).toString();
    const address = `${url}/sessions/${session}${route}${parameters && `?${parameters}`}`;
    const headers = { authorization: `Bearer ${this.token}`, ...init.headers };
    const response = await fetch(address, { ...init, headers }).catch((error: unknown) => {
      throw unreachable(url, error);
    });
    if (!response.ok) throw await errorOf(response, url);
    return response;
  }
}

async function errorOf(response: Response, url: string): Promise<Error> {
  const { status } = response;
  const text = await response.text().catch(() => '');
  const detail = detailOf(text) ?? `${url} returned status ${status}`;
  if (status === 401) return unauthorized('The service rejects the token');
  if (status === 404) return notFound(detail);
  if (status === 409) return conflict(detail);
  const kind = KINDS[status];
  if (kind !== undefined) return new DomainError(kind, detail);
  return status >= 500 ? new Unreachable(detail) : new Error(detail);
}

function detailOf(text: string): string | undefined {
  try {
    const { detail } = JSON.parse(text) as { detail?: unknown };
    return (typeof detail === 'string' ? detail : JSON.stringify(detail)).slice(0, MAX_DETAIL);
  } catch {
    return undefined;
  }
}

/** @returns an error that names the address and the cause */
export function unreachable(url: string, error: unknown): Unreachable {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const reason = cause instanceof Error ? cause.message || cause.name : String(cause);
  const remedy =
    url === DEFAULT_URL ? ' (set another address with --url or AGENT_SESSIONS_URL)' : '';
  return new Unreachable(`${url} cannot be reached: ${reason}${remedy}`, { cause: error });
}
