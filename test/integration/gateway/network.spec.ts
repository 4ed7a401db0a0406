import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer as createHttpServer, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, createServer, type Server as TcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { Metrics } from '../../../src/metrics/metrics.js';
import type { SandboxDriver } from '../../../src/sandboxes/driver/sandbox-driver.js';
import { KeyRing } from '../../../src/secrets/key-ring.js';
import { Prices } from '../../../src/usage/prices.js';
import { UsageCollector } from '../../../src/usage/usage-collector.service.js';
import type { UsageRepository } from '../../../src/usage/usage.repository.js';
import { ENCRYPTION_KEYS } from '../../support/service.js';
import { DialError } from '../../../src/gateway/egress/connections.js';
import { gatewayAt } from '../../../src/gateway/client.js';
import { type GrantContent, KEY_PREFIXES } from '../../../src/gateway/grants.js';
import { dialGateway } from '../../../src/gateway/network/dial-gateway.js';
import type { UsageEntry } from '../../../src/gateway/usage/usage-entry.js';
import { UsageReader } from '../../../src/gateway/usage/reader.js';
import { makeCertificates } from '../../support/certificates.js';
import { eventually } from '../../support/sessions.js';
import { NetworkGatewayProcess, networkGrant, sendOver } from './network-gateway.js';

const REAL_KEY = 'the-real-key-0123456789';
const PATH = '/anthropic/v1/messages';
const START =
  'data: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":7}}}\n\n';
const END = 'data: {"type":"message_delta","usage":{"output_tokens":9}}\n\n';

let upstream: Server;
let keys: (string | undefined)[];
let answer: (response: ServerResponse) => void;
let folder: string;
let certificates: string[];
const gateways: NetworkGatewayProcess[] = [];
const sandbox = randomUUID();

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'network-certificates-'));
  await makeCertificates(folder);
  certificates = [await readFile(join(folder, 'ca.pem'), 'utf8')];
  upstream = createHttpServer((request, response) => {
    keys.push(request.headers['x-api-key'] as string | undefined);
    request.resume().on('end', () => answer(response));
  }).listen(0, '127.0.0.1');
  await once(upstream, 'listening');
});
afterAll(async () => {
  upstream.closeAllConnections();
  upstream.close();
  await rm(folder, { recursive: true });
});
afterEach(async () => {
  for (const gateway of gateways.splice(0)) await gateway.stop();
});

const upstreamUrl = () => `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;

async function start(env: Record<string, string | undefined> = {}) {
  keys = [];
  answer = (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(START + END);
  };
  const gateway = await NetworkGatewayProcess.start({ ANTHROPIC_BASE_URL: upstreamUrl(), ...env });
  gateways.push(gateway);
  return gateway;
}

function key(of = sandbox): Record<string, string> {
  const model = { kind: 'model', api: 'anthropic', url: upstreamUrl(), key: REAL_KEY };
  return { 'x-api-key': KEY_PREFIXES.anthropic + networkGrant(model as GrantContent, of) };
}

async function get(url: string, headers: Record<string, string> = {}) {
  const response = await fetch(url, { headers });
  return { status: response.status, text: await response.text() };
}

describe.each(['without TLS', 'with TLS'] as const)('%s', (how) => {
  const isSecure = how === 'with TLS';
  const tls = () =>
    isSecure
      ? {
          GATEWAY_CERT_FILE: join(folder, 'server-cert.pem'),
          GATEWAY_KEY_FILE: join(folder, 'server-key.pem'),
        }
      : {};
  const trusted = () => (isSecure ? certificates : undefined);

  it('exchanges the grant of the sandbox that connects for the real key', async () => {
    const gateway = await start(tls());
    const link = gateway.remote(trusted()).linkOf(sandbox);
    const { status, text: body } = await sendOver(link, PATH, key());
    expect([status, body]).toEqual([200, START + END]);
    expect(keys).toEqual([REAL_KEY]);
  });

  it('refuses the grant of another sandbox, whatever the relay says it is', async () => {
    const gateway = await start(tls());
    const another = randomUUID();
    const link = gateway.remote(trusted()).linkOf(another);
    const { status, text: body } = await sendOver(link, PATH, key(), sandbox);
    expect(status).toBe(403);
    expect(body).toContain('The grant belongs to another sandbox');
    expect(keys).toEqual([]);
    await eventually(() => gateway.logs.includes(`"sandbox":"${another}"`), 'an entry in the log');
  });

  it('refuses connections with a wrong identity at once, and without one anything but usage', async () => {
    const gateway = await start(tls());
    const link = gateway.remote(trusted()).linkOf(sandbox);
    const identity = networkGrant({ kind: 'git', repositories: [] }, sandbox);
    const signal = AbortSignal.timeout(10_000);
    await expect(gatewayAt({ ...link, identity }).broker(sandbox, signal)).rejects.toMatchObject({
      kind: 'refused',
      message: 'the gateway does not accept the identity of this sandbox',
    });
    for (const request of [
      { broker: sandbox, relay: 'x' },
      { relay: 'x', host: '127.0.0.1', port: 1, isGateway: true },
      { relay: 'x', lookup: 'example.com' },
      { hold: true },
      { stats: true },
      { usage: 'no proof' },
    ]) {
      const socket = await dialGateway({ ...link, identity: undefined }, signal);
      socket.write(`${JSON.stringify(request)}\n`);
      const got = await text(socket).catch(() => '');
      expect(got).toBe('');
      socket.destroy();
    }
  });

  it('connects to where the relay asks, both ways, with each side ending by itself', async () => {
    const echo: TcpServer = createServer({ allowHalfOpen: true }, (socket) => {
      void text(socket).then((all) => socket.end(`heard ${all.length}`));
    }).listen(0, '127.0.0.1');
    await once(echo, 'listening');
    try {
      const gateway = await start(tls());
      const client = gatewayAt(gateway.remote(trusted()).linkOf(sandbox));
      const { port } = echo.address() as AddressInfo;
      const target = { host: '127.0.0.1', port, isGateway: true };
      const socket = await client.connect(target, AbortSignal.timeout(10_000));
      socket.end(Buffer.alloc(3_000_000, 'x'));
      expect(await text(socket)).toBe('heard 3000000');
      await expect(
        client.connect({ ...target, isGateway: false }, AbortSignal.timeout(10_000)),
      ).rejects.toThrow(DialError);
    } finally {
      echo.close();
    }
  });

  it('delivers usage to workers that prove themselves', async () => {
    const gateway = await start(tls());
    const remote = gateway.remote(trusted());
    await sendOver(remote.linkOf(sandbox), PATH, key());
    const [address = ''] = await remote.addresses();
    const stored: UsageEntry[] = [];
    const connection = await remote.connect(address, AbortSignal.timeout(10_000));
    const reader = new UsageReader(connection, NetworkGatewayProcess.seal, {
      store: async (entries) => void stored.push(...entries),
      replaced: () => undefined,
    });
    await reader.flush();
    reader.close();
    await reader.done;
    expect(stored).toMatchObject([{ turn: 'a-turn', input_tokens: 7, output_tokens: 9 }]);
  });

  it('is not trusted if its certificate is unknown', async () => {
    const gateway = await start(tls());
    const check = gateway.remote().check(AbortSignal.timeout(10_000));
    if (isSecure) await expect(check).rejects.toThrow(/certificate|issuer/);
    else await check;
    await gateway.remote(trusted()).check(AbortSignal.timeout(10_000));
  });
});

it('answers probes, and nothing else over HTTP', async () => {
  const { url } = await start();
  expect(await get(`${url}/healthz`)).toEqual({ status: 200, text: 'ok\n' });
  expect(await get(`${url}/readyz`)).toEqual({ status: 200, text: 'ok\n' });
  expect((await get(`${url}${PATH}`, key())).status).toBe(404);
  expect((await get(`${url}/connect`)).status).toBe(426);
  expect((await get(`${url}/metrics`)).status).toBe(404);
});

it('has its metrics at a port of their own', async () => {
  const gateway = await start({ METRICS_PORT: '0', LOG_FORMAT: 'json' });
  await sendOver(gateway.remote().linkOf(sandbox), PATH, key());
  const metrics = /Metrics on (http:[^"\s]+)/.exec(gateway.logs)?.[1] ?? '';
  const { text: body } = await get(metrics);
  expect(body).toMatch(/^agent_sessions_gateway_requests_total\{[^}]*answered[^}]*\} 1$/m);
  expect(body).toMatch(/^agent_sessions_gateway_connections \d+$/m);
});

it('lets relays wait while it is killed and started again', async () => {
  const gateway = await start();
  const link = gateway.remote().linkOf(sandbox);
  gateway.signal('SIGKILL');
  await gateway.ended();
  const waiting = sendOver(link, PATH, key());
  await gateway.run();
  expect((await waiting).status).toBe(200);
});

it('stops when running responses have ended and their usage is fetched', async () => {
  const gateway = await start();
  const remote = gateway.remote();
  let finish = (): void => undefined;
  answer = (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(START);
    finish = () => void response.end(END);
  };
  let begun = (): void => undefined;
  const isBegun = new Promise<void>((resolve) => (begun = resolve));
  const running = sendOver(remote.linkOf(sandbox), PATH, key(), 'x', () => begun());
  await isBegun;
  gateway.signal('SIGTERM');
  await eventually(
    async () => (await get(`${gateway.url}/readyz`)).status === 503,
    'it to be unready',
  );
  // The relays of other sandboxes try another gateway.
  await expect(
    dialGateway(remote.linkOf(randomUUID()), AbortSignal.timeout(10_000)),
  ).rejects.toThrow('status 503');
  finish();
  expect(await running).toMatchObject({ status: 200, text: START + END });
  const stored: UsageEntry[] = [];
  const reader = new UsageReader(
    await remote.connect('127.0.0.1', AbortSignal.timeout(10_000)),
    NetworkGatewayProcess.seal,
    { store: async (entries) => void stored.push(...entries), replaced: () => undefined },
  );
  expect(await gateway.ended()).toBe(0);
  await reader.done;
  expect(stored).toMatchObject([{ output_tokens: 9 }]);
});

it('is collected from by workers, from each of several gateways', async () => {
  const [first, second] = [await start(), await start()];
  const stored: UsageEntry[] = [];
  const record = async (entries: readonly UsageEntry[]) => {
    stored.push(...entries);
    return entries;
  };
  const ports = new Map([first, second].map((gateway) => [String(gateway.port), gateway]));
  const driver: Partial<SandboxDriver> = {
    gatewayAddresses: async () => [...ports.keys()],
    connectGateway: async (port = '') =>
      ports.get(port)?.remote().connect('127.0.0.1', AbortSignal.timeout(10_000)) ??
      Promise.reject(new Error('unknown')),
  };
  const collector = new UsageCollector(
    { record } as unknown as UsageRepository,
    { nameOf: () => undefined } as unknown as Prices,
    driver as SandboxDriver,
    KeyRing.parse(ENCRYPTION_KEYS),
    new Metrics({ metricsPort: undefined } as never),
  );
  collector.onApplicationBootstrap();
  try {
    for (const gateway of [first, second])
      await sendOver(gateway.remote().linkOf(sandbox), PATH, key());
    await eventually(() => stored.length === 2, 'the usage of both');
    // One that was restarted is connected to again, and is told which turns are over their budget.
    collector.block('a-turn', 'The budget is used up');
    first.signal('SIGKILL');
    await first.ended();
    await first.run();
    await eventually(
      async () => (await sendOver(first.remote().linkOf(sandbox), PATH, key())).status !== 200,
      'a refusal',
    );
    const { status, text: body } = await sendOver(second.remote().linkOf(sandbox), PATH, key());
    expect([status, body]).toEqual([expect.any(Number), expect.stringContaining('The budget is')]);
  } finally {
    await collector.beforeApplicationShutdown();
  }
});

it('is not held up by peers that send nothing', async () => {
  const gateway = await start();
  const silent = Array.from({ length: 300 }, () => connect(gateway.port, '127.0.0.1'));
  for (const socket of silent) socket.on('error', () => undefined);
  await eventually(() => silent.filter(({ destroyed }) => destroyed).length >= 44, 'a limit');
  // Connections that have identified themselves do not count.
  for (const socket of silent) socket.destroy();
  await eventually(
    async () => (await sendOver(gateway.remote().linkOf(sandbox), PATH, key())).status === 200,
    'an answer',
  );
});

it('needs the keys of the workers', async () => {
  await expect(NetworkGatewayProcess.start({ ENCRYPTION_KEYS: undefined })).rejects.toThrow(
    'ENCRYPTION_KEYS: must be set for APP_ROLE=gateway',
  );
});
