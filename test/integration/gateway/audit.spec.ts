import { appendFile, readFile, stat } from 'node:fs/promises';
import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { type GrantContent, KEY_PREFIXES } from '../../../src/gateway/grants.js';
import { OwnGateway } from './own-gateway.js';

const REAL_KEY = 'the-real-key-0123456789';
const NOBODY = 65_534;
const LOG_LIMIT_BYTES = 8 * 2 ** 20;
const ANOTHER = '00000000-0000-4000-8000-000000000000';

let upstream: Server;
let base: string;
let answer: (response: ServerResponse) => void;
let gateway: OwnGateway;

beforeAll(async () => {
  upstream = createServer((request, response) => {
    request.resume();
    answer(response);
  }).listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  const { port } = upstream.address() as AddressInfo;
  base = `http://127.0.0.1:${port}`;
  // As in a service that runs as root: the gateway may not change its folder.
  gateway = await OwnGateway.start(
    [`127.0.0.1:${port}`],
    'gateway',
    process.geteuid?.() === 0 ? NOBODY : null,
  );
});
afterAll(async () => {
  await gateway.stop();
  upstream.closeAllConnections();
  upstream.close();
});

function grant(changes = {}, content: Partial<GrantContent> = {}): string {
  const model = { kind: 'model', api: 'anthropic', url: base, key: REAL_KEY, ...content };
  return KEY_PREFIXES.anthropic + gateway.grant(model as GrantContent, changes);
}

function send(key: string, options: Parameters<OwnGateway['send']>[1] = {}) {
  return gateway.send('/anthropic/v1/messages', {
    method: 'POST',
    body: '{}',
    headers: { 'x-api-key': key },
    ...options,
  });
}

/** The entry of the request that `work` sends. */
async function entryOf(work: () => Promise<unknown>): Promise<Record<string, unknown>> {
  const before = await gateway.logged();
  await work();
  // A request is logged when its response has ended.
  for (;;) {
    const entries = (await gateway.requests()).slice(before);
    if (entries.length > 0) return entries[0] ?? {};
    await delay(5);
  }
}

/** The value of a sample in the gateway's metrics. */
async function figure(name: string, labels: Record<string, string>): Promise<number> {
  const metrics = await gateway.keeper.metrics();
  const values = metrics.find((metric) => metric.name === `agent_sessions_gateway_${name}`)?.values;
  const wanted = Object.entries(labels);
  const found = values?.filter((sample) =>
    wanted.every(([label, value]) => String(sample.labels[label]) === value),
  );
  return found?.at(-1)?.value ?? Number.NaN;
}

it('a forwarded request leaves an entry and is counted, with the time that was added', async () => {
  answer = (response) => void setTimeout(() => response.end('fine'), 1_000);
  const counted = { service: 'anthropic', result: 'answered' };
  const before = await figure('requests_total', counted);
  let tookMs = 0;
  const entry = await entryOf(async () => {
    const begun = performance.now();
    const sent = await send(grant());
    tookMs = performance.now() - begun;
    return sent;
  });
  expect(entry).toMatchObject({
    kind: 'model',
    service: 'anthropic',
    session: 'a-session',
    turn: 'a-turn',
    user: 'a-user',
    sandbox: gateway.sandbox,
    method: 'POST',
    target: `${base}/v1/messages`,
    status: 200,
  });
  for (const name of ['refused', 'reason', 'failed', 'error']) expect(entry[name]).toBeUndefined();
  // What the upstream took does not count as added: together they are no longer than the request was.
  expect(entry['upstreamMs']).toBeGreaterThanOrEqual(999);
  expect(Number(entry['upstreamMs']) + Number(entry['addedMs'])).toBeLessThan(tookMs + 2);
  expect(await figure('requests_total', counted)).toBe(before + 1);
  const metrics = await gateway.keeper.metrics();
  const samples = metrics.find(({ type }) => type === 'histogram')?.values ?? [];
  const own = samples.filter(({ labels }) => labels['service'] === 'anthropic');
  const suffixes = own.map(({ metricName }) => metricName?.replace(/^.*_/, ''));
  expect(new Set(suffixes)).toEqual(new Set(['bucket', 'sum', 'count']));
  const buckets = own.filter(({ metricName }) => metricName?.endsWith('_bucket'));
  expect(buckets.map(({ value }) => value)).toEqual(
    buckets.map(({ value }) => value).toSorted((a, b) => a - b),
  );
  expect(buckets.at(-1)).toMatchObject({ labels: { le: '+Inf' }, value: before + 1 });
});

it('a request for a repository that gets no token leaves an entry with its session, too', async () => {
  answer = (response) => void response.end('fine');
  const repositories = [{ url: `${base}/team/app.git`, token: REAL_KEY }];
  const password = gateway.grant({ kind: 'git', repositories });
  const authorization = `Basic ${Buffer.from(`grant:${password}`).toString('base64')}`;
  const path = `/git/${base.replace('//', '')}/team/app-docs.git/info/refs`;
  const entry = await entryOf(() => gateway.send(path, { headers: { authorization } }));
  expect(entry).toMatchObject({ service: 'git', session: 'a-session', status: 200 });
});

it.each([
  ['missing', () => send('')],
  ['invalid', () => send('sk-ant-api03-nonsense')],
  ['wrong_kind', () => send(grant({}, { kind: 'git', repositories: [] }))],
  ['wrong_sandbox', () => send(grant(), { sandbox: ANOTHER })],
  ['expired', () => send(grant({ expires: 1 }))],
  ['wrong_target', () => send(grant(), { method: 'DELETE' })],
] as const)('a refused grant: %s', async (reason, work) => {
  const before = await figure('refused_grants_total', { reason });
  const refused = await figure('requests_total', { service: 'anthropic', result: 'refused' });
  const entry = await entryOf(work);
  expect(entry).toMatchObject({ reason, refused: expect.any(String), service: 'anthropic' });
  // The entry names the holder of the grant, besides the sandbox that used it.
  const isReadable = reason !== 'missing' && reason !== 'invalid';
  expect(entry['session']).toBe(isReadable ? 'a-session' : undefined);
  expect(await figure('refused_grants_total', { reason })).toBe(before + 1);
  const after = await figure('requests_total', { service: 'anthropic', result: 'refused' });
  expect(after).toBe(refused + 1);
});

it.each([
  ['unauthorized', (response: ServerResponse): void => void response.writeHead(401).end()],
  ['rate_limited', (response: ServerResponse): void => void response.writeHead(429).end()],
  ['server_error', (response: ServerResponse): void => void response.writeHead(529).end()],
  ['no_answer', (response: ServerResponse): void => void response.destroy()],
  [
    'interrupted',
    (response: ServerResponse) => {
      response.writeHead(200).write('some');
      setTimeout(() => response.destroy(), 20);
    },
  ],
] as const)('an error of the upstream: %s', async (kind, respond) => {
  answer = respond;
  const counted = { service: 'anthropic', error: kind };
  const before = await figure('upstream_errors_total', counted);
  const entry = await entryOf(() => send(grant()).catch(() => undefined));
  const isFailure = kind === 'no_answer' || kind === 'interrupted';
  expect(entry['failed']).toBe(isFailure ? kind : undefined);
  expect(entry['refused']).toBeUndefined();
  expect(await figure('upstream_errors_total', counted)).toBe(before + 1);
});

it.each([
  ['before the response', false],
  ['in the middle of it', true],
])('a client that disconnects %s is no error of the upstream', async (_when, hasBegun) => {
  let begun = (): void => undefined;
  const isThere = new Promise<void>((resolve) => (begun = resolve));
  answer = (response) => {
    if (hasBegun) response.writeHead(200).write('some');
    else begun();
  };
  const errors = async () =>
    (await figure('upstream_errors_total', { service: 'anthropic', error: 'no_answer' })) +
    (await figure('upstream_errors_total', { service: 'anthropic', error: 'interrupted' }));
  const before = await errors();
  const counted = { service: 'anthropic', result: 'cancelled' };
  const cancelled = await figure('requests_total', counted);
  const entry = await entryOf(async () => {
    const left = new AbortController();
    const sent = send(grant(), { onData: begun, signal: left.signal }).catch(() => undefined);
    await isThere;
    left.abort();
    await sent;
  });
  expect(entry).toMatchObject({ failed: 'cancelled', status: hasBegun ? 200 : 499 });
  expect([await errors(), await figure('requests_total', counted)]).toEqual([
    before,
    cancelled + 1,
  ]);
});

it('the log stays bounded, and keeps what came last', async () => {
  answer = (response) => void response.end('fine');
  await entryOf(() => send(grant()));
  const log = join(gateway.folder, 'log');
  await appendFile(log, `${'x'.repeat(1023)}\n`.repeat(LOG_LIMIT_BYTES / 1024));
  // The next gateway finds the file full.
  process.kill(await gateway.pid(), 'SIGKILL');
  await send(grant());
  while (!(await readFile(log, 'utf8')).includes('"request"')) await delay(20);
  expect((await stat(log)).size).toBeLessThan(4096);
  const previous = await readFile(`${log}.1`, 'utf8');
  expect(previous.slice(0, 500)).toContain('"event":"started"');
  expect(previous.slice(-1000)).toMatch(/^x{999}\n$/);
  expect((previous + (await readFile(log, 'utf8'))).includes(REAL_KEY)).toBe(false);
});

it('a gateway that does not run has no metrics, and is not started for them', async () => {
  const own = await OwnGateway.start([]);
  expect(await own.keeper.metrics()).not.toEqual([]);
  await own.stop();
  expect(await own.keeper.metrics()).toEqual([]);
});

it('a gateway that is killed while it starts is started again', async () => {
  answer = (response) => void response.end('fine');
  const own = await OwnGateway.start([new URL(base).host]);
  const started = async () => (await own.log()).filter(({ event }) => event === 'started');
  for (let round = 1; round <= 5; round += 1) {
    // As soon as it has logged its start, and so probably before the keeper has noticed it.
    process.kill(await own.pid(), 'SIGKILL');
    while ((await started()).length === round) await delay(1);
  }
  const content = { kind: 'model', api: 'anthropic', url: base, key: REAL_KEY } as const;
  const key = KEY_PREFIXES.anthropic + own.grant(content);
  const headers = { 'x-api-key': key };
  const { status } = await own.send('/anthropic/v1/messages', { method: 'POST', headers });
  expect(status).toBe(200);
  await own.stop();
});
