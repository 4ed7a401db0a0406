import type { IncomingMessage } from 'node:http';
import type { GitGrant } from '../grants.js';
import { isGitRequest, isGitRequestBelow } from './git-requests.js';
import { LfsBatchRewriter } from './lfs-batch.js';
import {
  CREDENTIAL_HEADERS,
  Refusal,
  type Admission,
  type CheckGrant,
  type Reply,
  type Route,
  removeHeader,
} from './route.js';

const PATH = /^\/git\/([^/]+)(\/.*)$/s;
/** The user name that git servers take together with a token. */
const USER = 'x-access-token';

/**
 * Git over HTTPS, as `/git/<scheme>:<host[:port]>/<path>`. Clients authenticate with the grant as their password. The
 * token is only added to requests of git and git LFS below the session's own repositories.
 */
export class GitRoute implements Route {
  constructor(private readonly check: CheckGrant) {}

  matches(path: string): boolean {
    return PATH.test(path);
  }

  admit(request: IncomingMessage, sandbox: string | null): Admission {
    const url = upstreamOf(request);
    const password = passwordOf(request);
    if (password === undefined)
      throw new Refusal(401, 'Authentication is required', { reason: 'missing' });
    const grant = this.check(password, 'git', sandbox);
    const found = repositoryOf(grant, url);
    if (found === undefined) {
      if (isRewritten(grant, url) && isGitRequestBelow(request.method ?? '', url.pathname))
        return { url, grant, drop: CREDENTIAL_HEADERS, headers: {} };
      throw new Refusal(403, `${url.host}${url.pathname} is not a repository of this session`, {
        reason: 'wrong_target',
        grant,
      });
    }
    const { repository, path } = found;
    const method = request.method ?? '';
    if (!isGitRequest(method, path))
      throw new Refusal(403, `The gateway does not forward ${method} ${url.pathname}`, {
        reason: 'wrong_target',
        grant,
      });
    const authorization = basic(USER, repository.token);
    const isBatch = path === 'info/lfs/objects/batch';
    const client = request.headers.authorization ?? '';
    return {
      url,
      grant,
      drop: CREDENTIAL_HEADERS,
      headers: { authorization, ...(isBatch ? { 'accept-encoding': 'identity' } : {}) },
      ...(isBatch && {
        transform: (reply: Reply) => {
          // The rewriting changes the length.
          removeHeader(reply, 'content-length');
          return [
            new LfsBatchRewriter({
              repository: new URL(repository.url),
              gateway: gatewayOf(request),
              secret: authorization,
              replacement: client,
            }),
          ];
        },
      }),
    };
  }

  describeRefusal(_request: IncomingMessage, status: number, message: string) {
    return {
      headers: {
        'Content-Type': 'text/plain; charset=utf-8',
        ...(status === 401 && { 'WWW-Authenticate': 'Basic realm="git"' }),
      },
      body: `${message}\n`,
    };
  }
}

function gatewayOf({ headers }: IncomingMessage): string {
  return `http://${headers.host ?? '127.0.0.1'}`;
}

function upstreamOf({ url = '/' }: IncomingMessage): URL {
  const [, authority = '', rest = '/'] = PATH.exec(url) ?? [];
  const [, scheme = '', host = ''] = /^(https?):([^/:@]+(?::\d+)?|\[[\da-f:.]+\](?::\d+)?)$/i.exec(
    authority,
  ) ?? ['', '', ''];
  if (host === '' || !URL.canParse(`${scheme}://${host}${rest}`))
    throw new Refusal(400, 'The gateway expects /git/https:<host>/<repository>');
  return new URL(`${scheme}://${host}${rest}`);
}

/** The session's repository that the request is for, and the path below it. */
function repositoryOf(
  grant: GitGrant,
  url: URL,
): { repository: GitGrant['repositories'][number]; path: string } | undefined {
  for (const repository of grant.repositories) {
    const known = new URL(repository.url);
    if (known.protocol !== url.protocol || known.host !== url.host) continue;
    const own = bare(known.pathname);
    const prefix = [`${own}/`, `${own}.git/`].find((each) => isBelow(url.pathname, each));
    if (prefix !== undefined) return { repository, path: url.pathname.slice(prefix.length) };
  }
  return undefined;
}

/**
 * Whether git rewrites the address of this other repository as well: its rules match prefixes, so a rule for `/a/app`
 * also matches `/a/app-docs`. Such a repository is reached without the token.
 */
function isRewritten(grant: GitGrant, url: URL): boolean {
  return grant.repositories.some((repository) => {
    const known = new URL(repository.url);
    return (
      known.protocol === url.protocol &&
      known.host === url.host &&
      url.pathname.startsWith(bare(known.pathname)) &&
      url.pathname[bare(known.pathname).length] !== '/'
    );
  });
}

/** Encoded slashes and dots could mean another path to the server than they mean here. */
function isBelow(path: string, prefix: string): boolean {
  return (
    path.startsWith(prefix) && !/%2f|%2e|%5c|\\|\/\.\.?(\/|$)/i.test(path.slice(prefix.length))
  );
}

function bare(path: string): string {
  return path.replace(/\/+$/, '').replace(/\.git$/, '');
}

function passwordOf({ headers }: IncomingMessage): string | undefined {
  const encoded = /^Basic\s+(\S+)$/i.exec(headers.authorization ?? '')?.[1];
  if (encoded === undefined) return undefined;
  const text = Buffer.from(encoded, 'base64').toString('latin1');
  return text.slice(text.indexOf(':') + 1);
}

function basic(user: string, password: string): string {
  return `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
}
