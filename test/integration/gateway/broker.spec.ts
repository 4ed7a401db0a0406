import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { cp, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { type GrantedApi, GrantSeal, KEY_PREFIXES } from '../../../src/gateway/grants.js';
import { testWith } from '../../support/requirements.js';
import { isAlive, OwnGateway, sendToGateway, type Answer } from './own-gateway.js';

const NOBODY = 65_534;

const REAL_KEY = 'the-real-key-0123456789';
const TOKEN = 'the-real-token/with:odd@characters%20';
const MCP_SECRET = 'the-real-header-0123456789';

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

let upstream: Server;
let port: number;
let handle: Handler;
/** What the upstream got. */
let received: { url: string; headers: IncomingMessage['headers']; raw: string }[];
let gateway: OwnGateway;

beforeAll(async () => {
  upstream = createServer((request, response) => {
    received.push({
      url: `${request.method} ${request.url}`,
      headers: request.headers,
      raw: request.rawHeaders.join('\n'),
    });
    handle(request, response);
  }).listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  ({ port } = upstream.address() as AddressInfo);
  gateway = await OwnGateway.start([`127.0.0.1:${port}`]);
});
afterAll(async () => {
  await gateway.stop();
  upstream.closeAllConnections();
  upstream.close();
});
beforeEach(() => {
  received = [];
  handle = (request, response) => void request.resume().on('end', () => response.end('fine'));
});

const base = () => `http://127.0.0.1:${port}`;
const modelGrant = (api: GrantedApi = 'anthropic', changes = {}) =>
  KEY_PREFIXES[api] + gateway.grant({ kind: 'model', api, url: base(), key: REAL_KEY }, changes);
const ask = (key: string, more: Parameters<OwnGateway['send']>[1] = {}, path = '/v1/messages') =>
  gateway.send(`/anthropic${path}`, {
    method: 'POST',
    body: '{}',
    ...more,
    headers: { 'x-api-key': key, ...more.headers },
  });

const gitGrant = (changes = {}) =>
  gateway.grant(
    { kind: 'git', repositories: [{ url: `${base()}/team/app.git`, token: TOKEN }] },
    changes,
  );
const basic = (password: string) => `Basic ${Buffer.from(`grant:${password}`).toString('base64')}`;
const git = (path: string, grant?: string, host = `http:127.0.0.1:${port}`, sandbox?: string) =>
  gateway.send(`/git/${host}${path}`, {
    headers: grant === undefined ? {} : { authorization: basic(grant) },
    ...(sandbox === undefined ? {} : { sandbox }),
  });
const gitBy = (method: string, path: string) =>
  gateway.send(`/git/http:127.0.0.1:${port}${path}`, {
    method,
    headers: { authorization: basic(gitGrant()) },
  });

const toolGrant = (transport: 'http' | 'sse', changes = {}) =>
  gateway.grant(
    { kind: 'mcp', transport, url: `${base()}/mcp?v=1`, headers: { 'X-Token': MCP_SECRET } },
    changes,
  );
const tool = (path: string, grant: string, more: Parameters<OwnGateway['send']>[1] = {}) =>
  gateway.send(path, { ...more, headers: { 'x-session-grant': grant, ...more.headers } });

describe('model APIs', () => {
  it.each([
    ['anthropic', '/v1/messages', 'x-api-key', REAL_KEY],
    ['openai', '/v1/responses', 'authorization', `Bearer ${REAL_KEY}`],
    ['openai', '/v1/chat/completions', 'authorization', `Bearer ${REAL_KEY}`],
    ['google', '/v1beta/models/gemini-2:streamGenerateContent', 'x-goog-api-key', REAL_KEY],
  ] as const)('%s %s get the key and nothing of the client’s', async (api, path, name, value) => {
    const key = modelGrant(api);
    const answer = await gateway.send(`/${api}${path}?alt=sse&key=${key}`, {
      method: 'POST',
      body: '{}',
      headers: {
        authorization: `Bearer ${key}`,
        'x-goog-api-key': key,
        'x-api-key': key,
        cookie: 'a=b',
        'x-own': 'kept',
      },
    });
    expect([answer.status, answer.text]).toEqual([200, 'fine']);
    const [got] = received;
    expect(got?.url).toBe(`POST ${path}?alt=sse`);
    expect(got?.headers[name]).toBe(value);
    expect(got?.headers['x-own']).toBe('kept');
    expect(got?.headers.cookie).toBeUndefined();
    expect(got?.raw.split(REAL_KEY)).toHaveLength(2);
    expect(got?.raw).not.toContain(key.slice(20, 60));
  });

  it('are streamed as they arrive, unchanged', async () => {
    let next = (): void => undefined;
    handle = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream', 'x-request-id': 'r-1' });
      response.write('event: one\ndata: 1\n\n');
      next = () => response.end('event: two\ndata: 2\n\n');
    };
    const chunks: string[] = [];
    const answer = await ask(modelGrant(), {
      onData: (chunk) => {
        chunks.push(String(chunk));
        if (chunks.length === 1) next();
      },
    });
    expect(chunks).toEqual(['event: one\ndata: 1\n\n', 'event: two\ndata: 2\n\n']);
    expect(answer.headers).toMatchObject({
      'content-type': 'text/event-stream',
      'x-request-id': 'r-1',
    });
  });

  it('pass errors of the provider on', async () => {
    handle = (_request, response) =>
      void response.writeHead(529, { 'retry-after': '7' }).end('{"type":"error"}');
    const answer = await ask(modelGrant());
    expect([answer.status, answer.headers['retry-after'], answer.text]).toEqual([
      529,
      '7',
      '{"type":"error"}',
    ]);
  });

  it('whose server is away are a 502 in the provider’s format', async () => {
    const key =
      KEY_PREFIXES.anthropic +
      gateway.grant({ kind: 'model', api: 'anthropic', url: 'http://127.0.0.1:9', key: REAL_KEY });
    const answer = await ask(key);
    expect(answer.status).toBe(502);
    expect(JSON.parse(answer.text)).toMatchObject({ type: 'error', error: {} });
    expect(answer.text).not.toContain(REAL_KEY);
  });
});

describe('a grant is refused', () => {
  const another = '00000000-0000-4000-8000-000000000000';
  const cases: [name: string, send: () => Promise<Answer>, status: number][] = [
    ['from another sandbox', () => ask(modelGrant(), { sandbox: another }), 403],
    ['after its turn', () => ask(modelGrant('anthropic', { expires: Date.now() - 1 })), 401],
    [
      'for another API',
      () =>
        gateway.send('/openai/v1/responses', {
          method: 'POST',
          headers: { authorization: `Bearer ${modelGrant('anthropic')}` },
        }),
      401,
    ],
    [
      'for another API under its own prefix',
      () =>
        gateway.send('/openai/v1/responses', {
          method: 'POST',
          headers: {
            authorization: `Bearer ${modelGrant('anthropic').slice(KEY_PREFIXES.anthropic.length)}`,
          },
        }),
      403,
    ],
    ['for another path', () => ask(modelGrant(), {}, '/v1/organizations/api_keys'), 403],
    ['for a path with a way up', () => ask(modelGrant(), {}, '/v1/messages/../models/x'), 403],
    ['for an encoded path', () => ask(modelGrant(), {}, '/v1/messages%2f..%2ffiles'), 403],
    ['for another method', () => ask(modelGrant(), { method: 'DELETE' }), 403],
    ['when it was changed', () => ask(`${modelGrant().slice(0, -3)}AAA`), 401],
    ['when it is nonsense', () => ask('sk-ant-api03-nonsense'), 401],
    ['when there is none', () => gateway.send('/anthropic/v1/messages', { method: 'POST' }), 401],
    ['of git for a model', () => ask(gitGrant()), 403],
    ['of a model for git', () => git('/team/app.git/info/refs', modelGrant().slice(13)), 403],
    [
      'of git from another sandbox',
      () => git('/team/app.git/info/refs', gitGrant(), undefined, another),
      403,
    ],
    ['of git after its turn', () => git('/team/app.git/info/refs', gitGrant({ expires: 1 })), 401],
    ['for another repository', () => git('/team/other.git/info/refs', gitGrant()), 403],
    ['for the parent of its repository', () => git('/team/info/refs', gitGrant()), 403],
    [
      'for a way out of its repository',
      () => git('/team/app.git/../other.git/info/refs', gitGrant()),
      403,
    ],
    [
      'for an encoded way out',
      () => git('/team/app.git/%2e%2e/other.git/info/refs', gitGrant()),
      403,
    ],
    [
      'for another git host',
      () => git('/team/app.git/info/refs', gitGrant(), 'http:git.example'),
      403,
    ],
    ['for another port', () => git('/team/app.git/info/refs', gitGrant(), 'http:127.0.0.1:9'), 403],
    [
      'for another scheme',
      () => git('/team/app.git/info/refs', gitGrant(), `https:127.0.0.1:${port}`),
      403,
    ],
    ['for what is not git’s', () => git('/team/app.git/settings', gitGrant()), 403],
    ['for a file of the repository', () => git('/team/app.git/config', gitGrant()), 403],
    ['for an archive', () => git('/team/app/archive/main.tar.gz', gitGrant()), 403],
    // A server answers TRACE with the request that it received, including the token.
    ['for TRACE', () => gitBy('TRACE', '/team/app.git/info/refs'), 403],
    ['for TRACE of LFS', () => gitBy('TRACE', '/team/app.git/info/lfs/locks'), 403],
    ['for deletion', () => gitBy('DELETE', '/team/app.git/info/refs'), 403],
    ['for no host', () => git('/team/app.git/info/refs', gitGrant(), 'nowhere'), 400],
    [
      'of a tool server from another sandbox',
      () => tool('/mcp/0', toolGrant('http'), { sandbox: another }),
      403,
    ],
    [
      'of a tool server after its turn',
      () => tool('/mcp/0', toolGrant('http', { expires: 1 })),
      401,
    ],
    [
      'for an endpoint that was not named',
      () => tool('/mcp/0/endpoint/abcdef', toolGrant('sse')),
      403,
    ],
    [
      'for TRACE of a tool server',
      () => tool('/mcp/0', toolGrant('http'), { method: 'TRACE' }),
      403,
    ],
    ['for a path below a tool server', () => tool('/mcp/0/admin', toolGrant('http')), 404],
  ];

  it.each(cases)('%s', async (_name, send, status) => {
    const before = await gateway.logged();
    const answer = await send();
    expect(answer.status).toBe(status);
    expect(received).toEqual([]);
    for (const secret of [REAL_KEY, TOKEN, MCP_SECRET]) expect(answer.text).not.toContain(secret);
    expect(await gateway.logged()).toBe(before + 1);
    expect((await gateway.requests()).at(-1)).toMatchObject({
      status,
      refused: expect.stringMatching(/./),
    });
  });

  it('and the log never has a secret, a grant or a body', async () => {
    const grant = modelGrant();
    await ask(grant, { body: '{"prompt":"a secret prompt"}' });
    await git(`/team/app.git/info/refs?service=git-upload-pack`, gitGrant());
    const text = JSON.stringify(await gateway.log());
    for (const secret of [REAL_KEY, TOKEN, MCP_SECRET, grant.slice(20), 'a secret prompt'])
      expect(text).not.toContain(secret);
    expect(text).toContain('/team/app.git/info/refs');
  });
});

describe('git', () => {
  it('is asked for the grant, and its repository gets the token', async () => {
    const bare = await git('/team/app.git/info/refs?service=git-upload-pack');
    expect([bare.status, bare.headers['www-authenticate']]).toEqual([401, 'Basic realm="git"']);
    for (const [method, path] of [
      ['GET', '/team/app.git/info/refs?service=git-upload-pack'],
      ['POST', '/team/app/git-receive-pack'],
      ['GET', `/team/app.git/objects/pack/pack-${'0f'.repeat(20)}.idx`],
      ['PUT', '/team/app.git/info/lfs/objects/0f'],
      ['POST', '/team/app.git/info/lfs/locks/1/unlock'],
    ] as const) {
      received = [];
      expect((await gitBy(method, path)).status).toBe(200);
      expect(received[0]?.url).toBe(`${method} ${path}`);
      expect(received[0]?.headers.authorization).toBe(
        `Basic ${Buffer.from(`x-access-token:${TOKEN}`).toString('base64')}`,
      );
    }
  });

  it('reaches a repository whose name begins the same, without the token', async () => {
    expect((await git('/team/app-docs.git/info/refs', gitGrant())).status).toBe(200);
    expect(received[0]?.raw).not.toMatch(/authorization/i);
    received = [];
    expect((await gitBy('DELETE', '/team/app-settings')).status).toBe(403);
    expect((await git('/team/app-docs/settings', gitGrant())).status).toBe(403);
    expect(received).toEqual([]);
  });

  it('LFS objects are fetched through the gateway, and no answer has the token', async () => {
    const real = `Basic ${Buffer.from(`x-access-token:${TOKEN}`).toString('base64')}`;
    handle = (request, response) => {
      request.resume();
      response.writeHead(200, { 'content-type': 'application/vnd.git-lfs+json' });
      const action = (href: string, header: object) => ({
        actions: { download: { href, header } },
      });
      response.end(
        JSON.stringify({
          note: real,
          objects: [
            action(`${base()}/team/app.git/info/lfs/objects/1?x=y`, { Authorization: real }),
            action('https://storage.example/2?signed', { authorization: real, 'X-Own': 'kept' }),
            action('https://storage.example/3', { Authorization: 'Bearer own' }),
          ],
        }),
      );
    };
    const grant = gitGrant();
    const answer = await gateway.send(
      `/git/http:127.0.0.1:${port}/team/app.git/info/lfs/objects/batch`,
      { method: 'POST', headers: { authorization: basic(grant) } },
    );
    expect(answer.text).not.toContain(real);
    const { objects } = JSON.parse(answer.text) as { objects: { actions: unknown }[] };
    expect(objects.map(({ actions }) => actions)).toEqual([
      {
        download: {
          href: `http://127.0.0.1/git/http:127.0.0.1:${port}/team/app.git/info/lfs/objects/1?x=y`,
          header: { Authorization: basic(grant) },
        },
      },
      { download: { href: 'https://storage.example/2?signed', header: { 'X-Own': 'kept' } } },
      { download: { href: 'https://storage.example/3', header: { Authorization: 'Bearer own' } } },
    ]);
  });
});

describe('tool servers', () => {
  it('get their secret headers', async () => {
    const answer = await tool('/mcp/0', toolGrant('http'), {
      method: 'POST',
      body: '{}',
      headers: { 'x-token': 'of the client', 'mcp-session-id': 's' },
    });
    expect(answer.status).toBe(200);
    expect(received[0]?.url).toBe('POST /mcp?v=1');
    expect(received[0]?.headers).toMatchObject({ 'x-token': MCP_SECRET, 'mcp-session-id': 's' });
    expect(received[0]?.headers['x-session-grant']).toBeUndefined();
  });

  it.each([
    ['a path', () => '/messages?id=1'],
    ['an address', () => `${base()}/messages?id=1`],
  ])('over sse are sent messages where they say, as %s', async (_name, endpoint) => {
    handle = (request, response) => {
      if (request.method === 'POST') return void response.writeHead(202).end();
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(': hello\n\nevent: endp');
      setTimeout(
        () => response.end(`oint\ndata: ${endpoint()}\n\nevent: message\ndata: {}\n\n`),
        20,
      );
    };
    const grant = toolGrant('sse');
    const { text } = await tool('/mcp/3', grant);
    const path =
      /event: endpoint\ndata: (\/mcp\/3\/endpoint\/[\w-]+)\n\nevent: message\ndata: {}\n\n$/.exec(
        text,
      )?.[1];
    expect(text.startsWith(': hello\n\n')).toBe(true);
    expect((await tool(path ?? '', grant, { method: 'POST', body: '{}' })).status).toBe(202);
    expect(received[1]?.url).toBe('POST /messages?id=1');
    expect(received[1]?.headers).toMatchObject({ 'x-token': MCP_SECRET });
    // The same address with the grant of another server.
    const other = gateway.grant({
      kind: 'mcp',
      transport: 'sse',
      url: `${base()}/other`,
      headers: { 'X-Token': MCP_SECRET },
    });
    expect((await tool(path ?? '', other, { method: 'POST' })).status).toBe(403);
  });

  it('over sse cannot have the headers sent to another server', async () => {
    handle = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end('event: endpoint\ndata: https://evil.example/steal\n\n');
    };
    const { text } = await tool('/mcp/0', toolGrant('sse'));
    expect(text).toBe('event: endpoint\ndata: https://evil.example/steal\n\n');
  });
});

describe('the process', () => {
  it('passes much data both ways in bounded memory', async () => {
    const MiB = Buffer.alloc(2 ** 20, 'x');
    handle = (request, response) => {
      let got = 0;
      request.on('data', (chunk: Buffer) => (got += chunk.length));
      request.on('end', () => {
        response.writeHead(200);
        let left = 200;
        const more = (): void => {
          while (left > 0) {
            left -= 1;
            if (!response.write(MiB)) return void response.once('drain', more);
          }
          response.end(String(got));
        };
        more();
      });
    };
    let bytes = 0;
    let tail = '';
    const pid = await gateway.pid();
    const before = await residentMemory(pid);
    await ask(modelGrant(), {
      body: Buffer.alloc(30 * 2 ** 20, 'y'),
      onData: (chunk) => {
        bytes += chunk.length;
        tail = chunk.toString().slice(-8);
      },
    });
    expect(bytes).toBe(200 * 2 ** 20 + 8);
    expect(tail).toBe(String(30 * 2 ** 20));
    expect(await gateway.pid()).toBe(pid);
    // What the streams add, whatever the program itself needs. Kept whole, they would add 230 MiB.
    expect((await peakMemory(pid)) - before).toBeLessThan(150 * 2 ** 20);
  });

  it('is replaced after kill -9, and requests wait for the next one', async () => {
    for (let round = 0; round < 5; round += 1) {
      const pid = await gateway.pid();
      process.kill(pid, 'SIGKILL');
      expect((await ask(modelGrant())).status).toBe(200);
      expect(await gateway.pid()).not.toBe(pid);
    }
  });

  it('waits for the one that has started it, however long that takes to connect', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'gateway-'));
    const config = { grantKeys: [], trusted: [], idleMs: 1, user: null, version: 'v' };
    const child = spawn(process.execPath, [resolve('dist/src/gateway/main.js')], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    try {
      const ended = once(child, 'exit');
      child.stdin.end(JSON.stringify({ ...config, socket: join(folder, 'socket') }));
      for await (const data of child.stdout) if (String(data).includes('ready')) break;
      await delay(300);
      const client = connect(join(folder, 'socket'));
      client.write('{"hold":true}\n');
      const [answer] = (await once(client, 'data')) as [Buffer];
      expect(JSON.parse(answer.toString())).toEqual({ ok: true, version: 'v' });
      client.destroy();
      await ended;
    } finally {
      child.kill('SIGKILL');
      await rm(folder, { recursive: true });
    }
  });

  testWith(['root'], 'serves as nobody from where only root may enter', async () => {
    const installation = await mkdtemp(join(tmpdir(), 'installation-'));
    const folder = await mkdtemp(join(tmpdir(), 'gateway-'));
    const program = join(installation, 'main.mjs');
    await cp(resolve('dist/src/gateway/main.js'), program);
    const child = spawn(process.execPath, [program], { stdio: ['pipe', 'pipe', 'inherit'] });
    try {
      const ended = once(child, 'exit');
      const grantKeys = [randomBytes(32).toString('base64url')];
      const trusted = [`127.0.0.1:${port}`];
      const config = { grantKeys, trusted, idleMs: 1, user: NOBODY, version: 'v' };
      child.stdin.end(JSON.stringify({ ...config, socket: join(folder, 'socket') }));
      for await (const data of child.stdout) if (String(data).includes('ready')) break;
      expect((await stat(installation)).mode % 0o100).toBe(0);
      expect(await userOf(child.pid)).toBe(NOBODY);
      const grant = new GrantSeal(grantKeys).seal({
        sandbox: gateway.sandbox,
        session: 'a-session',
        turn: 'a-turn',
        user: 'a-user',
        expires: Date.now() + 60_000,
        kind: 'model',
        api: 'anthropic',
        url: base(),
        key: REAL_KEY,
      });
      const { status, text } = await sendToGateway(
        folder,
        gateway.sandbox,
        '/anthropic/v1/messages',
        { method: 'POST', body: '{}', headers: { 'x-api-key': KEY_PREFIXES.anthropic + grant } },
      );
      expect({ status, text }).toEqual({ status: 200, text: 'fine' });
      await ended;
    } finally {
      child.kill('SIGKILL');
      await rm(folder, { recursive: true });
      await rm(installation, { recursive: true });
    }
  });

  it('ends when nobody needs it any more', async () => {
    // Longer than the path of a socket may be.
    const own = await OwnGateway.start([], 'gateway'.repeat(20));
    expect((await own.send('/anthropic/v1/messages')).status).toBe(401);
    const pid = await own.pid();
    own.keeper.close();
    const end = performance.now() + 60_000;
    while (isAlive(pid) && performance.now() < end) await delay(20);
    expect(isAlive(pid)).toBe(false);
    await own.stop();
  });
});

async function userOf(pid: number | undefined): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/^Uid:\s+(\d+)/m.exec(status)?.[1]);
}

/** The resident memory that a process has now, from which its peak is counted anew. Bytes. */
async function residentMemory(pid: number): Promise<number> {
  await writeFile(`/proc/${pid}/clear_refs`, '5');
  return memory(pid, 'VmRSS');
}

/** The most resident memory that a process has had since {@link residentMemory}. Bytes. */
function peakMemory(pid: number): Promise<number> {
  return memory(pid, 'VmHWM');
}

async function memory(pid: number, field: 'VmRSS' | 'VmHWM'): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) * 1024;
}

describe('one sandbox', () => {
  it('that sends too many requests is slowed down, and others are not', async () => {
    const statuses = new Map<number, number>();
    let others = 0;
    const neighbour = '11111111-1111-4111-8111-111111111111';
    await Promise.all(
      Array.from({ length: 40 }, async (_, index) => {
        // On a busy machine, more requests are needed to exceed the rate.
        for (let i = 0; i < 10 || !statuses.has(429); i += 1) {
          const { status } = await gateway.send('/anthropic/v1/messages', { method: 'POST' });
          statuses.set(status, (statuses.get(status) ?? 0) + 1);
          if (index > 0 || i > 4) continue;
          const other = modelGrant('anthropic', { sandbox: neighbour });
          if ((await ask(other, { sandbox: neighbour })).status === 200) others += 1;
        }
      }),
    );
    expect(others).toBe(5);
    expect(new Set(statuses.keys())).toEqual(new Set([401, 429]));
  });
});
