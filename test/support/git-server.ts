import { execFileSync, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface GitServer {
  /** Without a trailing slash; a repository is at `/<name>.git`. */
  readonly url: string;
  /** The commits of the repository, by what they say. */
  readonly commits: Record<'first' | 'second' | 'branch', string>;
  /** Paths that were asked for with the right credentials. */
  readonly served: string[];
  stop(): Promise<void>;
}

/**
 * A real git server: `git http-backend` with the repositories `private`, which takes a token as password, and `public`,
 * which does not ask. Each has two commits on `main` and one more on the branch `feature`.
 */
export async function startGitServer(token: string): Promise<GitServer> {
  const root = await mkdtemp(join(tmpdir(), 'git-server-'));
  const commits = makeRepository(join(root, 'work'));
  for (const name of ['private', 'public']) {
    git(root, 'clone', '--quiet', '--bare', 'work', `${name}.git`);
    git(join(root, `${name}.git`), 'config', 'http.uploadpack', 'true');
  }
  await writeFile(join(root, 'gitconfig'), '[safe]\n\tdirectory = *\n');
  const served: string[] = [];
  const server = createServer((incoming, outgoing) => {
    if (incoming.url?.startsWith('/private.git/') && !isAuthorized(incoming, token)) {
      outgoing.writeHead(401, { 'www-authenticate': 'Basic realm="git"' }).end('no\n');
      return;
    }
    served.push(incoming.url ?? '');
    runBackend(root, incoming, outgoing);
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    commits,
    served,
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await rm(root, { recursive: true });
    },
  };
}

function isAuthorized({ headers }: IncomingMessage, token: string): boolean {
  const credentials = Buffer.from(headers.authorization?.split(' ')[1] ?? '', 'base64').toString();
  return credentials.slice(credentials.indexOf(':') + 1) === token;
}

function makeRepository(folder: string): GitServer['commits'] {
  execFileSync('git', ['init', '--quiet', '--initial-branch=main', folder]);
  const commit = (file: string, text: string): string => {
    execFileSync('sh', ['-c', 'printf %s "$2" >"$1"', 'sh', file, text], { cwd: folder });
    git(folder, 'add', '.');
    git(folder, '-c', 'user.name=T', '-c', 'user.email=t@example.com', 'commit', '-qm', text);
    return git(folder, 'rev-parse', 'HEAD').trim();
  };
  const first = commit('README', 'first');
  const second = commit('README', 'second');
  git(folder, 'checkout', '--quiet', '-b', 'feature');
  const branch = commit('FEATURE', 'branch');
  git(folder, 'checkout', '--quiet', 'main');
  return { first, second, branch };
}

function git(cwd: string, ...args: string[]): string {
  return execFileSync('git', args, { cwd, encoding: 'utf8' });
}

/** CGI: the request's body goes in, headers and the answer's body come out. */
function runBackend(root: string, incoming: IncomingMessage, outgoing: ServerResponse): void {
  const [path = '', queryString = ''] = (incoming.url ?? '').split('?');
  const backend = spawn('git', ['http-backend'], {
    env: {
      PATH: process.env.PATH,
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: '1',
      GIT_CONFIG_GLOBAL: join(root, 'gitconfig'),
      PATH_INFO: path,
      QUERY_STRING: queryString,
      REQUEST_METHOD: incoming.method,
      CONTENT_TYPE: incoming.headers['content-type'] ?? '',
      HTTP_CONTENT_ENCODING: incoming.headers['content-encoding'] ?? '',
      HTTP_GIT_PROTOCOL: String(incoming.headers['git-protocol'] ?? ''),
      REMOTE_USER: 'test',
    },
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  incoming.pipe(backend.stdin);
  backend.stdin.on('error', () => undefined);
  let head = Buffer.alloc(0);
  let answering = false;
  backend.stdout.on('data', (chunk: Buffer) => {
    if (answering) {
      outgoing.write(chunk);
      return;
    }
    head = Buffer.concat([head, chunk]);
    const end = head.indexOf('\r\n\r\n');
    if (end === -1) return;
    answering = true;
    const lines = head.toString('latin1', 0, end).split('\r\n');
    const headers = lines.map((line) => line.split(': ', 2) as [string, string]);
    const status = headers.find(([name]) => name.toLowerCase() === 'status')?.[1];
    outgoing.writeHead(Number.parseInt(status ?? '200', 10), Object.fromEntries(headers));
    outgoing.write(head.subarray(end + 4));
  });
  backend.on('close', () => outgoing.end());
}
