import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { EventStreamClient } from '../support/event-stream-client.js';
import { HttpClient } from '../support/http-client.js';
import { describeWith } from '../support/requirements.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';
import type { Service } from '../support/service.js';
import { type Fault, type FlakyProxy, startFlakyProxy } from './support/flaky-proxy.js';
import { startProgram } from './support/program.js';

const LINES = 20;
const SCRIPT = `for i in $(seq ${LINES}); do echo line $i; sleep 0.05; done`;

let service: Service;
let sessions: SessionsOf;
let agentId: string;
beforeAll(async () => {
  service = await startSessionService();
  sessions = new SessionsOf(service, service);
  agentId = await sessions.createAgent();
});
afterAll(async () => {
  await leaveNothing(service, [sessions]);
  await service.stop();
});

describeWith(['bubblewrap'], 'the example of a web backend', () => {
  let faults: Fault[];
  let proxy: FlakyProxy;
  let relay: Awaited<ReturnType<typeof startProgram>>;
  let http: HttpClient;
  beforeEach(async () => {
    faults = [];
    proxy = await startFlakyProxy(service.url, faults);
    relay = await startProgram([process.execPath, 'examples/web-relay/server.ts'], {
      BASE_URL: proxy.url,
      ACCESS_TOKEN: service.token,
      AGENT_ID: agentId,
      PORT: '0',
    });
    http = new HttpClient(relay.url);
  });
  afterEach(async () => {
    const wrote = await relay.stop();
    await proxy.stop();
    expect(wrote).not.toContain(service.token);
  });

  /** A browser that has opened the page. */
  async function visit(): Promise<{ cookie: string }> {
    const { headers } = await http.get('/');
    return { cookie: String(headers['set-cookie']).split(';', 1)[0] ?? '' };
  }

  /** A run of the visitor. @returns the address of its events */
  async function run(cookie: { cookie: string }, prompt: string): Promise<string> {
    const { status, body, text } = await http.post('/runs', { prompt }, { headers: cookie });
    expect([status, text]).toEqual([201, text]);
    expect(text).not.toContain(service.token);
    return relay.url + String(body.events);
  }

  test('serves a page that loads what it needs from there', async () => {
    const page = await http.get('/');
    expect([page.status, page.headers['content-type']]).toEqual([200, 'text/html; charset=utf-8']);
    expect(String(page.headers['set-cookie'])).toMatch(/^visitor=.*HttpOnly; SameSite=Strict/);
    const script = /<script type="module" src="([^"]+)">/.exec(page.text)?.[1] ?? '';
    const { status, text } = await http.get(`/${script}`);
    expect([status, text.includes('new EventSource(')]).toEqual([200, true]);
    expect(page.text + text).not.toContain('ast_');
  });

  test('passes a stream on as it is, also after Last-Event-ID', async () => {
    const headers = await visit();
    const url = await run(headers, SCRIPT);
    const first = new EventStreamClient(url, { headers });
    await first.until(({ events }) => events.some(({ type }) => type === 'output'));
    await first.abort();
    await eventually(() => proxy.open() === 0, 'the relay to leave the stream');
    const seen = first.events.findLast(({ type }) => type !== 'turn_start')?.id;
    const second = await new EventStreamClient(url, { headers, lastEventId: seen }).end();
    expect(second.headers).toMatchObject({
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache',
      'x-accel-buffering': 'no',
    });
    expect(second.last).toMatchObject({ type: 'exit', code: 0 });
    const lines = Array.from({ length: LINES }, (_, i) => `line ${i + 1}\n`).join('');
    expect(first.output() + second.output()).toBe(lines);
    expect(proxy.cursors).toEqual(['', String(seen)]);
    for (const { frames, headers: answered } of [first, second]) {
      expect(JSON.stringify([frames, answered])).not.toContain(service.token);
    }
  });

  test('lets EventSource come again when the service is away, or breaks off', async () => {
    const headers = await visit();
    const url = await run(headers, 'echo done');
    faults.push({ how: 'refuse', status: 503 }, { how: 'cut', afterFrames: 3 });
    const away = await http.get(new URL(url).pathname, { headers });
    expect([away.status, away.headers['content-type'], away.text]).toEqual([
      200,
      'text/event-stream',
      'retry: 2000\n\n',
    ]);
    await expect(http.get(new URL(url).pathname, { headers })).rejects.toThrow();
    const { last } = await new EventStreamClient(url, { headers }).end();
    expect(last).toMatchObject({ type: 'exit', code: 0 });
  });

  test('shows a run to nobody else', async () => {
    const owner = await visit();
    const { pathname } = new URL(await run(owner, 'echo secret'));
    for (const headers of [{}, await visit(), { cookie: 'visitor=x' }]) {
      const { status, text } = await http.get(pathname, { headers });
      expect([status, text]).toEqual([404, '{"error":"Not found"}']);
    }
    expect(proxy.cursors).toEqual([]);
  });

  test('says what a person can do about a refusal, and no more', async () => {
    const headers = await visit();
    const refused = async (raw: string) => {
      const { status, body } = await http.post('/runs', undefined, { raw, headers });
      return [status, body.error];
    };
    expect(await refused('{')).toEqual([400, 'Not JSON']);
    expect(await refused('{}')).toEqual([422, 'A prompt is needed']);
    expect(await refused(`{"prompt":"${'x'.repeat(70_000)}"}`)).toEqual([413, 'Too much text']);
  });
});
