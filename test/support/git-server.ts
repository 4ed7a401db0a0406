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

/** Repositories that need the token. */
const PRIVATE = ['private', 'library', 'umbrella'];

/**
 * A real git server: `git http-backend` with the repositories `private` and `library`, which take a token as password,
 * and `public`, which does not ask. Each has two commits on `main` and one more on the branch `feature`. `umbrella` has
 * `library` as a submodule. Repositories with a token also have an LFS server.
 * @param host the name of this host for clients on other machines; default: only this host reaches it
 */
export async function startGitServer(token: string, host?: string): Promise<GitServer> {
  const root = await mkdtemp(join(tmpdir(), 'git-server-'));
  const commits = makeRepository(join(root, 'work'));
  for (const name of ['private', 'library', 'public']) publish(root, 'work', name);
  git(root, 'clone', '--quiet', 'work', 'umbrella');
  const umbrella = join(root, 'umbrella');
  const add = ['submodule', '--quiet', 'add', join(root, 'library.git'), 'library'];
  git(umbrella, '-c', 'protocol.file.allow=always', ...add);
  git(umbrella, 'config', '-f', '.gitmodules', 'submodule.library.url', '../library.git');
  git(umbrella, ...AUTHOR, 'commit', '-qam', 'with a submodule');
  publish(root, 'umbrella', 'umbrella');
  const objects = new Map<string, Buffer>();
  await writeFile(join(root, 'gitconfig'), '[safe]\n\tdirectory = *\n');
  const served: string[] = [];
  const server = createServer((incoming, outgoing) => {
    const name = /^\/([^/]+)\.git\//.exec(incoming.url ?? '')?.[1] ?? '';
    if (PRIVATE.includes(name) && !isAuthorized(incoming, token)) {
      outgoing.writeHead(401, { 'www-authenticate': 'Basic realm="git"' }).end('no\n');
      return;
    }
    served.push(incoming.url ?? '');
    if (incoming.url?.includes('/info/lfs/')) return serveLfs(objects, name, incoming, outgoing);
    runBackend(root, incoming, outgoing);
  });
  await new Promise<void>((resolve) => {
    server.listen(0, host === undefined ? '127.0.0.1' : '0.0.0.0', resolve);
  });
  return {
    url: `http://${host ?? '127.0.0.1'}:${(server.address() as AddressInfo).port}`,
    commits,
    served,
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await rm(root, { recursive: true });
    },
  };
}

const AUTHOR = ['-c', 'user.name=T', '-c', 'user.email=t@example.com'];

function publish(root: string, from: string, name: string): void {
  git(root, 'clone', '--quiet', '--bare', from, `${name}.git`);
  for (const service of ['uploadpack', 'receivepack'])
    git(join(root, `${name}.git`), 'config', `http.${service}`, 'true');
}

/** LFS's batch API and its objects. Like some real servers, it repeats the client's credentials in its answers. */
function serveLfs(
  objects: Map<string, Buffer>,
  name: string,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): void {
  const chunks: Buffer[] = [];
  incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
  incoming.on('end', () => {
    const body = Buffer.concat(chunks);
    const oid = /\/objects\/([0-9a-f]{64})$/.exec(incoming.url ?? '')?.[1];
    if (oid !== undefined && incoming.method === 'PUT') {
      objects.set(oid, body);
      return void outgoing.end();
    }
    if (oid !== undefined) {
      const found = objects.get(oid);
      return void outgoing.writeHead(found ? 200 : 404).end(found);
    }
    if (!incoming.url?.endsWith('/objects/batch')) return void outgoing.writeHead(404).end('{}');
    const { operation, objects: wanted } = JSON.parse(body.toString()) as {
      operation: string;
      objects: { oid: string; size: number }[];
    };
    const action = (id: string) => ({
      href: `http://${incoming.headers.host}/${name}.git/info/lfs/objects/${id}`,
      header: { Authorization: incoming.headers.authorization },
    });
    outgoing.writeHead(200, { 'content-type': 'application/vnd.git-lfs+json' }).end(
      JSON.stringify({
        transfer: 'basic',
        objects: wanted.map((object) => ({
          ...object,
          authenticated: true,
          actions: { [operation]: action(object.oid) },
        })),
      }),
    );
  });
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
    git(folder, ...AUTHOR, 'commit', '-qm', text);
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
