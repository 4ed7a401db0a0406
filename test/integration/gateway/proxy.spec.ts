import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import type { EgressNetwork, OutboundProxy } from '../../../src/common/egress-network.js';
import { type Egress } from '../../../src/gateway/egress/connections.js';
import { dialFromHost, hostEgress } from '../../../src/gateway/egress/dialing.js';

const PUBLIC = '203.0.113.9';
const MISSING = Object.assign(new Error('no such name'), { code: 'ENOTFOUND' });
const LISTED: EgressNetwork['privateHosts'] = [
  { host: { kind: 'exact', name: 'git.corp.example' }, ports: [443] },
];

/** What the proxy was asked for, and what was dialled without it. */
let proxied: string[];
let dialled: string[];
/** Of the names that this host knows. */
let addresses: Record<string, string[]>;
let answer: string;
let server: ReturnType<typeof createServer>;
const sockets: Socket[] = [];

beforeEach(async () => {
  proxied = [];
  dialled = [];
  addresses = { 'a.example': [PUBLIC] };
  answer = 'HTTP/1.1 200 OK\r\n\r\nhello';
  server = createServer();
  server.on('connect', (request, client: Socket) => {
    sockets.push(client.on('error', () => undefined));
    proxied.push(`${request.url} ${request.headers['proxy-authorization'] ?? 'nobody'}`);
    client.write(answer);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
});

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await new Promise((closed) => server.close(closed));
});

function egressWith(changes: Partial<OutboundProxy> = {}): Egress {
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  return hostEgress(
    (host) => (addresses[host] ? Promise.resolve(addresses[host]) : Promise.reject(MISSING)),
    (target) => {
      dialled.push(`${target.address}:${target.port}`);
      return dialFromHost({ ...target, address: '127.0.0.1', port });
    },
    { privateHosts: LISTED, proxy: { url, direct: [], resolves: false, ...changes } },
  );
}

async function connect(egress: Egress, host: string, { port = 443, isGateway = false } = {}) {
  const socket = await egress.connect({ host, port, isGateway }, AbortSignal.timeout(10_000));
  sockets.push(socket);
  return socket;
}

it('gives the proxy the address that was checked', async () => {
  const socket = await connect(egressWith(), 'a.example');
  expect(String((await once(socket, 'data'))[0])).toBe('hello');
  addresses['six.example'] = ['2606:4700::6'];
  await connect(egressWith(), 'six.example', { port: 22 });
  expect(proxied).toEqual([`${PUBLIC}:443 nobody`, '[2606:4700::6]:22 nobody']);
  expect(dialled).toEqual([]);
});

it('does not ask the proxy for forbidden addresses', async () => {
  Object.assign(addresses, {
    'inside.example': ['10.1.2.3'],
    'git.corp.example': ['127.0.0.1', '169.254.169.254', '10.1.2.3'],
  });
  const egress = egressWith({ resolves: true });
  for (const host of ['inside.example', '10.1.2.3'])
    await expect(connect(egressWith(), host)).rejects.toThrow(/forbidden|resolve/);
  await expect(connect(egress, 'inside.example')).rejects.toThrow('forbidden address: private');
  await connect(egressWith(), 'git.corp.example');
  await expect(connect(egressWith(), 'git.corp.example', { port: 80 })).rejects.toThrow(
    'forbidden address',
  );
  expect(proxied).toEqual(['10.1.2.3:443 nobody']);
});

it('leaves names that are unknown here to the proxy only if they are listed', async () => {
  await connect(egressWith(), 'git.corp.example');
  await expect(connect(egressWith(), 'b.example')).rejects.toThrow('does not resolve: ENOTFOUND');
  expect(proxied).toEqual(['git.corp.example:443 nobody']);
  const { signal } = new AbortController();
  expect(await egressWith().exists('git.corp.example', signal)).toBe(true);
  expect(await egressWith().exists('b.example', signal)).toBe(false);
});

it('leaves all public names to a proxy that resolves them', async () => {
  const egress = egressWith({ resolves: true });
  for (const host of ['a.example', 'b.example']) await connect(egress, host);
  for (const host of ['intranet', 'x.localhost', '10.1.2.3'])
    await expect(connect(egress, host)).rejects.toThrow('does not resolve');
  expect(proxied).toEqual(['a.example:443 nobody', 'b.example:443 nobody']);
  expect(await egress.exists('b.example', new AbortController().signal)).toBe(true);
});

it('connects to exceptions and to this machine without the proxy', async () => {
  const egress = egressWith({
    direct: [
      { host: { kind: 'exact', name: 'a.example' }, port: 443 },
      { host: '10.9.9.9' },
      { host: '10.20.0.0/16' },
    ],
  });
  addresses['localhost'] = addresses['127.0.0.1'] = ['127.0.0.1'];
  for (const address of ['10.9.9.9', '10.20.3.4', '10.21.3.4']) addresses[address] = [address];
  await connect(egress, 'a.example');
  for (const host of ['localhost', '127.0.0.1', '10.9.9.9', '10.20.3.4'])
    await connect(egress, host, { port: 8000, isGateway: true });
  const own = ['127.0.0.1:8000', '127.0.0.1:8000', '10.9.9.9:8000', '10.20.3.4:8000'];
  expect(dialled).toEqual([`${PUBLIC}:443`, ...own]);
  expect(proxied).toEqual([]);
  await connect(egress, 'a.example', { port: 22 });
  await connect(egress, 'Model.example', { isGateway: true });
  await connect(egress, '10.21.3.4', { isGateway: true });
  expect(proxied).toEqual([
    `${PUBLIC}:22 nobody`,
    'Model.example:443 nobody',
    '10.21.3.4:443 nobody',
  ]);
});

it.each([
  ['', 'HTTP/1.1 407 No\r\n\r\n', 'requires a user name and a password, and EGRESS_PROXY has none'],
  ['user:pa%40ss@', 'HTTP/1.1 407 No\r\n\r\n', 'does not accept the user name and password'],
  ['', 'HTTP/1.1 403 No\r\n\r\n', 'does not connect: it answered 403'],
  ['', 'HTTP/1.1 502 No\r\n\r\n', 'does not connect: it answered 502'],
  ['', 'nonsense\r\n\r\n', 'does not answer: HPE_'],
])('says why the proxy does not connect: %s %j', async (credentials, response, words) => {
  answer = response;
  const { port } = server.address() as AddressInfo;
  const egress = egressWith({ url: `http://${credentials}127.0.0.1:${port}` });
  await expect(connect(egress, 'a.example')).rejects.toThrow(
    new RegExp(`the proxy 127.0.0.1:${port} ${words}`),
  );
  const expected =
    credentials === '' ? 'nobody' : `Basic ${Buffer.from('user:pa@ss').toString('base64')}`;
  expect(proxied).toEqual([`${PUBLIC}:443 ${expected}`]);
});

it('tries the next address only if the proxy could not connect to the first', async () => {
  addresses['two.example'] = [PUBLIC, '203.0.113.10'];
  for (const status of [407, 502]) {
    answer = `HTTP/1.1 ${status} No\r\n\r\n`;
    await expect(connect(egressWith(), 'two.example')).rejects.toMatchObject({
      kind: status === 407 ? 'refused' : 'failed',
    });
  }
  expect(proxied.map((line) => line.split(':')[0])).toEqual([PUBLIC, PUBLIC, '203.0.113.10']);
});

it('says that there is no proxy', async () => {
  const egress = egressWith({ url: 'http://127.0.0.1:1' });
  await expect(connect(egress, 'a.example')).rejects.toThrow(
    'does not connect: the proxy 127.0.0.1:1 does not answer: ECONNREFUSED',
  );
});

it('leaves nothing open when the client leaves while the proxy connects', async () => {
  answer = '';
  const leaving = new AbortController();
  const waiting = egressWith().connect(
    { host: 'a.example', port: 443, isGateway: false },
    leaving.signal,
  );
  await once(server, 'connect');
  const ended = once(sockets[0] as Socket, 'end');
  sockets[0]?.resume();
  leaving.abort();
  await expect(waiting).rejects.toThrow();
  await ended;
});
