import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer as createHttpServer, type IncomingMessage, request } from 'node:http';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { SystemClock } from '../../src/common/clock.js';
import { WorkerTokens } from '../../src/files/remote/worker-tokens.js';
import { KeyRing } from '../../src/secrets/key-ring.js';
import { describeWith } from '../support/requirements.js';
import { ENCRYPTION_KEYS, query, type Service } from '../support/service.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';

const SIZE = 60_000_000;
const NO_WORKER =
  'The files of this session are on another host, and no worker there can be asked for them';
const NO_ANSWER = 'The files of this session are on another host, and its worker does not answer';

/** Passes connections on to a worker and counts the bytes that come from it. */
class CountingProxy {
  bytes = 0;
  upstream = 0;
  private readonly sockets = new Set<Socket>();
  private constructor(private readonly server: Server) {}

  static async start(): Promise<CountingProxy> {
    const server = createServer({ noDelay: true });
    const proxy = new CountingProxy(server);
    server.on('connection', (near) => {
      const far = connect({ port: proxy.upstream, host: '127.0.0.1', noDelay: true });
      far.on('data', (data) => (proxy.bytes += data.length));
      near.pipe(far).pipe(near);
      for (const socket of [near, far]) {
        proxy.sockets.add(socket);
        socket.on('error', () => undefined);
        socket.on('close', () => {
          near.destroy();
          far.destroy();
          proxy.sockets.delete(socket);
        });
      }
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    this.server.close();
    await once(this.server, 'close');
  }
}

let proxy: CountingProxy;
let first: Service;
let worker: Service;
/** Where the worker serves files. */
let url: string;
let api: Service;
let sessions: SessionsOf;
let id: string;
let sum: string;

const authorization = () => ({ authorization: `Bearer ${api.token}` });
const files = (route: string, parameters: Record<string, string> = {}, init: RequestInit = {}) =>
  fetch(`${api.url}/sessions/${id}${route}?${new URLSearchParams(parameters).toString()}`, {
    ...init,
    headers: { ...authorization(), ...(init.headers as Record<string, string>) },
  });
const refusal = async (answer: Response) => [
  answer.status,
  ((await answer.json()) as { detail: unknown }).detail,
  answer.headers.get('retry-after'),
];
const setUrl = (address: string | null) =>
  query(worker.databaseUrl, 'UPDATE workers SET url = $1', [address]);

/** Starts a worker and waits until it has announced its address. */
async function startWorker(
  options: { databaseUrl?: string; dataDir?: string } = {},
  env: Record<string, string> = {},
): Promise<void> {
  const role = { APP_ROLE: 'worker', WORKER_URL: 'http://127.0.0.1:0', ...env };
  worker = await startSessionService(role, options);
  url = /files of sandboxes at (http:\/\/127\.0\.0\.1:\d+)/.exec(worker.logs())?.[1] ?? '';
  const text = 'SELECT 1 FROM workers WHERE url = $1';
  await eventually(
    async () => (await query(worker.databaseUrl, text, [url])).length > 0,
    'the worker to announce its address',
  );
}

async function killAndRestartWorker(env: Record<string, string> = {}): Promise<void> {
  const { databaseUrl, dataDir } = worker;
  await worker.kill9();
  await startWorker({ databaseUrl, dataDir }, env);
}

describeWith(['sandboxes'], 'files of a sandbox on another host than the API', () => {
  beforeAll(async () => {
    proxy = await CountingProxy.start();
    await startWorker();
    first = worker;
    const { databaseUrl } = worker;
    // Its own data folder makes it another host.
    api = await startSessionService({ APP_ROLE: 'api' }, { databaseUrl });
    sessions = new SessionsOf(api, api);
    id = await sessions.create(
      `mkdir src; printf one >src/a; head -c ${SIZE} /dev/urandom >large; sha256sum <large`,
    );
    sum = (await sessions.stream(id).end()).output('stdout').slice(0, 64);
  });
  afterAll(async () => {
    await leaveNothing(worker, [sessions]);
    await api.stop();
    await worker.stop();
    if (first !== worker) await first.stop();
    await proxy.stop();
  });

  it('are listed, read, written, archived and deleted', async () => {
    expect(existsSync(join(api.dataDir, 'sandboxes', id))).toBe(false);
    const list = async (path: string) => {
      const { data } = (await (await files('/files', { path })).json()) as {
        data: { path: string }[];
      };
      return data.map((entry) => entry.path);
    };
    expect(await list('')).toEqual(['large', 'src']);
    expect(await list('/workspace/src')).toEqual(['src/a']);
    const put = await files('/files/content', { path: 'new/b' }, { method: 'PUT', body: 'two' });
    expect([put.status, await list('new')]).toEqual([200, ['new/b']]);
    const range = { headers: { range: 'bytes=1-' } };
    const part = await files('/files/content', { path: 'new/b' }, range);
    expect([part.status, await part.text()]).toEqual([206, 'wo']);
    const whole = await (await files('/files/content', { path: 'large' })).arrayBuffer();
    expect(createHash('sha256').update(Buffer.from(whole)).digest('hex')).toBe(sum);
    const archive = await files('/files/archive', { path: 'src' });
    expect(gunzipSync(Buffer.from(await archive.arrayBuffer())).includes('one')).toBe(true);
    expect((await files('/files', { path: 'new' }, { method: 'DELETE' })).status).toBe(200);
    expect(await list('')).toEqual(['large', 'src']);
    expect(await refusal(await files('/files/content', { path: '../../etc/passwd' }))).toEqual([
      404,
      'No such file',
      null,
    ]);
    expect(await (await files('/changes')).json()).toEqual({ data: [] });
  });

  it('are sent no faster than the client reads', async () => {
    // The announced address is part of each token, so the worker announces that of the proxy.
    const { port } = new URL(url);
    proxy.upstream = Number(port);
    await killAndRestartWorker({ WORKER_URL: proxy.url, WORKER_PORT: port });
    const sent = proxy.bytes;
    const path = `/sessions/${id}/files/content?path=large`;
    const download = request(`${api.url}${path}`, { agent: false, headers: authorization() });
    const response = once(download.end(), 'response');
    const [content] = (await response) as [AsyncIterable<Buffer>];
    // Nothing reads: only the buffers on the way fill.
    await eventually(async () => {
      const before = proxy.bytes;
      await delay(400);
      return before > sent && proxy.bytes === before;
    }, 'the transfer to stop');
    expect(proxy.bytes - sent).toBeLessThan(SIZE / 2);
    const hash = createHash('sha256');
    for await (const data of content) hash.update(data);
    expect(hash.digest('hex')).toBe(sum);
    expect(proxy.bytes - sent).toBeGreaterThan(SIZE);
  });

  it('are never cut in silence: a download goes on after a kill of the worker', async () => {
    await killAndRestartWorker();
    const parts: Buffer[] = [];
    let bytes = 0;
    let tag = '';
    for (let kills = 0; bytes < SIZE;) {
      const range = bytes === 0 ? {} : { range: `bytes=${bytes}-`, 'if-range': tag };
      const response = await files('/files/content', { path: 'large' }, { headers: range });
      if (response.status === 503) {
        expect(await refusal(response)).toEqual([503, NO_ANSWER, '5']);
        await delay(100);
        continue;
      }
      expect([bytes, response.status]).toEqual([bytes, bytes === 0 ? 200 : 206]);
      expect(response.headers.get('content-length')).toBe(String(SIZE - bytes));
      tag = response.headers.get('etag') ?? '';
      const stop = bytes + SIZE / 4;
      let killed: Promise<void> | undefined;
      let failure = '';
      try {
        for await (const part of response.body ?? []) {
          parts.push(Buffer.from(part));
          bytes += part.length;
          if (kills < 2 && bytes > stop) killed ??= killAndRestartWorker();
        }
      } catch (error) {
        failure = String(error);
      }
      expect([kills, failure]).toEqual([kills, kills < 2 ? 'TypeError: terminated' : '']);
      kills += 1;
      await killed;
    }
    expect(createHash('sha256').update(Buffer.concat(parts)).digest('hex')).toBe(sum);
  });

  it('are refused with the reason when no worker of the host can be reached', async () => {
    const { databaseUrl, dataDir } = worker;
    await worker.kill9();
    expect(await refusal(await files('/files'))).toEqual([503, NO_ANSWER, '5']);
    const put = await files('/files/content', { path: 'x' }, { method: 'PUT', body: 'x' });
    expect(await refusal(put)).toEqual([503, NO_ANSWER, '5']);
    await setUrl(null);
    expect(await refusal(await files('/files/archive'))).toEqual([503, NO_WORKER, '5']);
    await startWorker({ databaseUrl, dataDir });
    expect((await files('/files')).status).toBe(200);
  });

  it('are given to no process without the keys', async () => {
    const ask = async (headers: Record<string, string>): Promise<number | undefined> => {
      const sent = request(`${url}/files/${id}`, { agent: false, headers }).end();
      const answer = Promise.race([once(sent, 'response'), once(sent, 'upgrade')]);
      const [response] = (await answer) as [IncomingMessage];
      response.socket.destroy();
      return response.statusCode;
    };
    const upgrade = { connection: 'Upgrade', upgrade: 'agent-session-files' };
    expect(await ask({})).toBe(404);
    expect(await ask(upgrade)).toBe(401);
    const scope = { url, sandboxId: id };
    const token = (keys: string) =>
      new WorkerTokens(KeyRing.parse(keys), new SystemClock()).issue(scope);
    const others = `test:${Buffer.alloc(32, 'other').toString('base64')}`;
    expect(await ask({ ...upgrade, 'worker-token': token(others) })).toBe(401);
    const own = token(ENCRYPTION_KEYS);
    expect(await ask({ ...upgrade, 'worker-token': own })).toBe(101);
    expect(await ask({ ...upgrade, 'worker-token': own })).toBe(401);
  });

  it('are sent to nobody who only answers at the address of a worker', async () => {
    let received = 0;
    const impostor = createHttpServer();
    const connected: { destroy(): void }[] = [];
    impostor.on('upgrade', (_request, socket) => {
      connected.push(socket);
      socket.on('data', (data: Buffer) => (received += data.length));
      const layout = Buffer.from('{"home":"/home/agent","workspace":"/workspace"}');
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: agent-session-files\r\n` +
          `worker-proof: ${'x'.repeat(43)}\r\nsandbox-layout: ${layout.toString('base64url')}\r\n\r\n`,
      );
    });
    impostor.listen(0, '127.0.0.1');
    await once(impostor, 'listening');
    const { databaseUrl, dataDir } = worker;
    await worker.kill9();
    try {
      await setUrl(`http://127.0.0.1:${(impostor.address() as AddressInfo).port}`);
      const put = await files('/files/content', { path: 'x' }, { method: 'PUT', body: 'secret' });
      expect(await refusal(put)).toEqual([503, NO_ANSWER, '5']);
      expect(received).toBe(0);
      expect(api.logs()).toContain('it does not have the encryption keys of this process');
    } finally {
      for (const socket of connected) socket.destroy();
      impostor.close();
      await startWorker({ databaseUrl, dataDir });
    }
  });
});
