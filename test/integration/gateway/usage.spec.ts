import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from '@jest/globals';
import { GrantSeal, KEY_PREFIXES, type GrantedApi } from '../../../src/gateway/grants.js';
import type { UsageEntry } from '../../../src/gateway/usage/usage-entry.js';
import { UsageReader } from '../../../src/gateway/usage/reader.js';
import { eventually } from '../../support/sessions.js';
import { OwnGateway } from './own-gateway.js';

let upstream: Server;
let handle: (request: IncomingMessage, response: ServerResponse) => void;
let gateway: OwnGateway;
/** What readers have stored, in their order. */
let stored: UsageEntry[];
let readers: UsageReader[];

const START =
  'data: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":7}}}\n\n';
const END = 'data: {"type":"message_delta","usage":{"output_tokens":9}}\n\n';

beforeAll(async () => {
  upstream = createServer((request, response) => handle(request, response)).listen(0, '127.0.0.1');
  await once(upstream, 'listening');
});
afterAll(() => {
  upstream.closeAllConnections();
  upstream.close();
});
beforeEach(async () => {
  const { port } = upstream.address() as AddressInfo;
  gateway = await OwnGateway.start([`127.0.0.1:${port}`]);
  stored = [];
  readers = [];
  handle = (request, response) =>
    void request.resume().on('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(START + END);
    });
});
afterEach(async () => {
  for (const reader of readers) reader.close();
  await gateway.stop();
});

const key = (api: GrantedApi = 'anthropic', turn = 'a-turn') => {
  const { port } = upstream.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  return KEY_PREFIXES[api] + gateway.grant({ kind: 'model', api, url, key: 'real' }, { turn });
};
const PATHS: Record<GrantedApi, string> = {
  anthropic: '/anthropic/v1/messages',
  openai: '/openai/v1/responses',
  google: '/google/v1beta/models/gemini-2.5-pro:generateContent',
};
const ask = (api: GrantedApi = 'anthropic', turn?: string, path = PATHS[api]) =>
  gateway.send(path, {
    method: 'POST',
    body: '{}',
    headers: { authorization: `Bearer ${key(api, turn)}` },
  });

async function read(
  store: (entries: readonly UsageEntry[]) => Promise<void> = async (entries) =>
    void stored.push(...entries),
  seal = gateway.seal,
): Promise<UsageReader> {
  const reader = new UsageReader(await gateway.keeper.connect(), seal, {
    store,
    replaced: () => undefined,
  });
  readers.push(reader);
  return reader;
}

const journals = () =>
  readdirSync(join(gateway.folder, 'usage')).filter((name) => name.endsWith('.jsonl'));
const kill9 = async () => {
  const pid = await gateway.pid();
  process.kill(pid, 'SIGKILL');
  await eventually(async () => (await gateway.pid()) !== pid, 'another gateway');
};

it('is delivered with its grant, tokens and status, and once it is stored', async () => {
  const reader = await read();
  await ask();
  await reader.flush();
  expect(stored).toEqual([
    {
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      session: 'a-session',
      turn: 'a-turn',
      user: 'a-user',
      api: 'anthropic',
      model: 'm',
      status: 200,
      at: expect.any(Number),
      durationMs: expect.any(Number),
      input_tokens: 7,
      output_tokens: 9,
      cache_read_input_tokens: 0,
      cache_creation_input_tokens: 0,
    },
  ]);
});

it('waits for a reader, and comes again until it is acknowledged', async () => {
  for (let n = 0; n < 3; n += 1) await ask();
  const failing = await read(async () => {
    throw new Error('no database');
  });
  await failing.done;
  const again = await read();
  await again.flush();
  expect(stored).toHaveLength(3);
  again.close();
  await again.done;
  await ask();
  await (await read()).flush();
  expect(new Set(stored.map(({ id }) => id)).size).toBe(4);
  expect(stored).toHaveLength(4);
});

it('of one request goes to one of several readers, and to another one when that ends', async () => {
  const seen: string[] = [];
  const first = await read(async (entries) => void seen.push(...entries.map(() => 'first')));
  await ask();
  await first.flush();
  const second = await read(async (entries) => void seen.push(...entries.map(() => 'second')));
  await ask();
  await second.flush();
  first.close();
  await first.done;
  await ask();
  await second.flush();
  expect(seen).toEqual(['first', 'first', 'second']);
});

it('survives the death of the gateway, with a response that was under way', async () => {
  await ask('anthropic', 'ended');
  let begun = (): void => undefined;
  const isBegun = new Promise<void>((resolve) => (begun = resolve));
  handle = (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(START);
  };
  const cut = gateway.send(PATHS.anthropic, {
    method: 'POST',
    body: '{}',
    headers: { 'x-api-key': key('anthropic', 'cut') },
    onData: begun,
  });
  const failed = cut.catch(() => 'failed');
  await isBegun;
  await delay(50);
  await kill9();
  expect(await failed).toBe('failed');
  await (await read()).flush();
  await eventually(() => stored.length >= 2, 'what the killed gateway has left');
  expect(stored.map(({ turn, output_tokens: out, input_tokens: n }) => [turn, n, out])).toEqual([
    ['ended', 7, 9],
    ['cut', 7, 0],
  ]);
  await eventually(() => journals().length === 1, 'its journal to be removed');
  await kill9();
  await (await read()).flush();
  expect(stored).toHaveLength(2);
});

it('of a replaced gateway is still delivered, also of requests that go on', async () => {
  let finish = (): void => undefined;
  handle = (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(START);
    finish = () => response.end(END);
  };
  let replaced = false;
  const reader = new UsageReader(await gateway.keeper.connect(), gateway.seal, {
    store: async (entries) => void stored.push(...entries),
    replaced: () => (replaced = true),
  });
  readers.push(reader);
  const answer = ask();
  const before = await gateway.pid();
  await delay(100);
  const successor = await gateway.replace();
  await eventually(() => replaced, 'the reader to hear of it');
  finish();
  expect((await answer).text).toBe(START + END);
  await reader.done;
  expect(stored).toMatchObject([{ input_tokens: 7, output_tokens: 9 }]);
  expect(await gateway.pid()).not.toBe(before);
  successor.close();
});

it.each([
  ['anthropic', { type: 'error', error: { type: 'billing_error', message: 'Enough' } }],
  ['openai', { error: { type: 'insufficient_quota', code: 'insufficient_quota' } }],
  ['google', { error: { code: 402, status: 'RESOURCE_EXHAUSTED', message: 'Enough' } }],
] as const)('refuses a blocked turn in the format of %s', async (api, body) => {
  const reader = await read();
  reader.block('blocked', 'Enough');
  await reader.flush();
  const refused = await ask(api, 'blocked');
  expect(refused.status).toBe(402);
  expect(JSON.parse(refused.text)).toMatchObject(body);
  expect((await ask(api, 'other')).status).toBe(200);
  const counting = PATHS.anthropic + '/count_tokens';
  if (api === 'anthropic') expect((await ask(api, 'blocked', counting)).status).toBe(200);
  await reader.flush();
  expect(stored).toMatchObject([{ turn: 'other' }]);
});

it('is not for peers without the keys of grants', async () => {
  await ask();
  const stranger = await read(undefined, new GrantSeal([Buffer.alloc(32).toString('base64url')]));
  await stranger.done;
  expect(stored).toEqual([]);
});

it('is requested from streams of Chat Completions that would not report it', async () => {
  let body = '';
  handle = (request, response) => {
    request.on('data', (chunk) => (body += String(chunk)));
    request.on('end', () => response.end('{}'));
  };
  await gateway.send('/openai/v1/chat/completions', {
    method: 'POST',
    body: '{"model":"m","stream":true}',
    headers: { authorization: `Bearer ${key('openai')}` },
  });
  expect(JSON.parse(body)).toEqual({
    model: 'm',
    stream: true,
    stream_options: { include_usage: true },
  });
});
