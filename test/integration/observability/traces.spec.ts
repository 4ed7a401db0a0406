import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Service } from '../../support/service.js';
import {
  eventually,
  leaveNothing,
  SessionsOf,
  startSessionService,
} from '../../support/sessions.js';
import { createTestDatabase, type TestDatabase } from '../../support/test-database.js';
import { LIST_MODULES, modulesLoadedBy } from './loaded-modules.js';
import { type Collector, type ReceivedSpan, startCollector } from './otlp-collector.js';

const CALLER = { traceId: '4bf92f3577b34da6a3ce929d0e0e4736', spanId: '00f067aa0ba902b7' };
const TRACEPARENT = `00-${CALLER.traceId}-${CALLER.spanId}-01`;
const SECRETS = { variable: 'planted-variable-0123456789', header: 'planted-header-0123456789' };
/** The kinds of spans as OTLP numbers them. */
const SERVER = 2;

let collector: Collector;
let database: TestDatabase;
let dataDir: string;
let api: Service;
let workers: Service[];
let sessions: SessionsOf;

const traceOf = (traceId: string): ReceivedSpan[] =>
  collector.spans.filter((span) => span.traceId === traceId);
const named = (spans: readonly ReceivedSpan[], name: string): ReceivedSpan | undefined =>
  spans.find((span) => span.name === name);

beforeAll(async () => {
  collector = await startCollector();
  database = await createTestDatabase();
  dataDir = await mkdtemp(join(tmpdir(), 'traces-'));
  const start = (role: 'api' | 'worker', env: Record<string, string>) =>
    startSessionService(
      {
        APP_ROLE: role,
        OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
        OTEL_BSP_SCHEDULE_DELAY: '20',
        OTEL_RESOURCE_ATTRIBUTES: `deployment.environment.name=test,role=${role}`,
        OTEL_EXPORTER_OTLP_HEADERS: `x-key=${SECRETS.header}`,
        ...env,
      },
      { databaseUrl: database.url, dataDir },
    );
  api = await start('api', { OTEL_SERVICE_NAME: 'front', NODE_OPTIONS: LIST_MODULES });
  sessions = new SessionsOf(api, api);
  workers = [await start('worker', { OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json' })];
});

afterAll(async () => {
  const [worker] = workers.slice(-1);
  if (worker) await leaveNothing({ ...api, dataDir }, [sessions]);
  for (const service of [...workers, api]) await service.stop();
  await database.drop();
  await rm(dataDir, { recursive: true, force: true });
  await collector.stop();
});

describe('a trace', () => {
  test('leads from the request over the queue and a takeover to the exit, through three processes', async () => {
    const environment_id = await sessions.createEnvironment({
      env_vars: { KEY: SECRETS.variable },
    });
    const prompt = 'echo up; sleep 3; echo prompt-marker; exit 3';
    const agent_id = await sessions.createAgent();
    const { status, body } = await sessions.http.post(
      '/sessions',
      { agent_id, environment_id, prompt },
      { headers: { traceparent: TRACEPARENT } },
    );
    expect(status).toBe(202);
    await sessions.stream(body.id).until((stream) => stream.output() === 'up\n');
    // What it has finished is sent; what it is at dies with it.
    await eventually(() => named(traceOf(CALLER.traceId), 'runtime_start'), 'the first spans');
    await workers[0]?.kill9();
    workers.push(
      await startSessionService(
        {
          APP_ROLE: 'worker',
          LOG_FORMAT: 'pretty',
          OTEL_TRACES_EXPORTER: 'otlp',
          OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${collector.url}/v1/traces`,
          OTEL_BSP_SCHEDULE_DELAY: '20',
        },
        { databaseUrl: database.url, dataDir },
      ),
    );
    const stream = await sessions.stream(body.id).end();
    expect(stream.last.code).toBe(3);

    const spans = await eventually(() => {
      const found = traceOf(CALLER.traceId);
      return named(found, 'turn') && named(found, 'runtime') && found;
    }, 'the whole trace');
    const byId = new Map(spans.map((span) => [span.spanId, span]));
    expect(byId.size).toBe(spans.length);
    const parentOf = (span: ReceivedSpan): string =>
      span.parentSpanId === CALLER.spanId
        ? 'the caller'
        : (byId.get(span.parentSpanId)?.name ?? `unknown ${span.parentSpanId}`);
    const links = spans.map((span) => `${parentOf(span)} > ${span.name}`);
    expect(links.sort()).toEqual(
      [
        'the caller > POST /sessions',
        'POST /sessions > turn',
        ...['queue', 'create_sprite', 'env_file', 'provision_setup'].map(
          (name) => `turn > ${name}`,
        ),
        ...['runtime_start', 'runtime', 'takeover'].map((name) => `turn > ${name}`),
      ].sort(),
    );
    const turn = named(spans, 'turn');
    expect(turn).toMatchObject({
      failed: true,
      attributes: { 'session.id': body.id, 'turn.state': 'failed', provider: 'shell' },
    });
    expect(named(spans, 'POST /sessions')).toMatchObject({
      kind: SERVER,
      failed: false,
      attributes: { 'http.response.status_code': '202', 'session.id': body.id },
      resource: { 'service.name': 'front', role: 'api', 'deployment.environment.name': 'test' },
    });
    // The successor tells of the whole life of the runtime.
    const runtime = named(spans, 'runtime');
    expect(runtime).toMatchObject({ attributes: { 'exit.reason': 'exited', 'exit.code': '3' } });
    expect(Number((runtime?.end ?? 0n) - (runtime?.start ?? 0n))).toBeGreaterThan(1e9);
    for (const span of spans) expect(span.end).toBeGreaterThanOrEqual(span.start);
    expect([...collector.received.keys()].sort()).toEqual([
      'application/json',
      'application/x-protobuf',
    ]);
  });

  test('of a turn that is terminated ends, whoever runs it', async () => {
    const id = await sessions.create('echo up; sleep 600');
    await sessions.stream(id).until((stream) => stream.output() === 'up\n');
    await sessions.http.post(`/sessions/${id}/terminate`);
    const turn = await eventually(
      () =>
        collector.spans.find(
          (span) => span.name === 'turn' && span.attributes['session.id'] === id,
        ),
      'the turn',
    );
    expect(turn).toMatchObject({ failed: false, attributes: { 'turn.state': 'terminated' } });
    const spans = traceOf(turn.traceId);
    expect(named(spans, 'POST /sessions')).toMatchObject({
      spanId: turn.parentSpanId,
      parentSpanId: '',
    });
    expect(turn.traceId).not.toBe(CALLER.traceId);
  });

  test('is not made of a request whose caller does not want one', async () => {
    const traceId = 'a'.repeat(32);
    const headers = { traceparent: `00-${traceId}-${'b'.repeat(16)}-00` };
    const { body } = await sessions.post('true').then(async (answer) => {
      await sessions.stream(answer.body.id, { headers }).end();
      return answer;
    });
    await eventually(
      () => collector.spans.find(({ attributes }) => attributes['session.id'] === body.id),
      'another trace',
    );
    expect(traceOf(traceId)).toEqual([]);
  });

  test('has no secret, no prompt and no output', async () => {
    const text = collector.text();
    expect(text).toContain('create_sprite');
    for (const word of [...Object.values(SECRETS), 'prompt-marker', api.token]) {
      expect([word, text.includes(word)]).toEqual([word, false]);
    }
    expect(collector.headers['x-key'] ?? SECRETS.header).toBe(SECRETS.header);
  });

  test('takes the SDK, which is loaded for it', () => {
    expect(modulesLoadedBy(api.logs())).toContain('sdk-trace');
  });

  test('is named by the lines of the log', () => {
    expect(api.logs()).toContain(`"trace_id":"${CALLER.traceId}"`);
    expect(workers.at(-1)?.logs()).toMatch(/\[TurnRunner\] .*The turn has failed/);
  });
});
