import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { HttpClient } from '../../support/http-client.js';
import { query, type Service } from '../../support/service.js';
import {
  eventually,
  leaveNothing,
  SessionsOf,
  startSessionService,
} from '../../support/sessions.js';
import { createTestDatabase, type TestDatabase } from '../../support/test-database.js';
import { gate, type GatedDatabase } from './gated-database.js';
import { parseScrape } from './prometheus-text.js';

const SECRETS = {
  apiKey: 'planted-api-key-0123456789',
  variable: 'planted-variable-0123456789',
  repositoryToken: 'planted-repository-token-0123456789',
  header: 'planted-header-0123456789',
};
const WRONG_TOKEN = `ast_${'w'.repeat(49)}`;

interface Line {
  level: string;
  context: string;
  msg: string;
  request_id?: string;
  session_id?: string;
  turn_id?: string;
  user_id?: string;
  route?: string;
  path?: string;
  status?: number;
  err?: { message: string; stack: string };
  reason?: string;
}

let database: TestDatabase;
let gated: GatedDatabase;
let service: Service;
let sessions: SessionsOf;

const lines = (): Line[] =>
  service
    .logs()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line);
const ofRequest = (id: string): Line[] => lines().filter(({ request_id }) => request_id === id);
/**
 * The line about the request itself. It is written when the request is over, which is a little after its answer. What
 * others log on its behalf, such as that the database is unavailable, has its id, too.
 */
const lineOf = (id: string): Promise<Line> =>
  eventually(
    () => ofRequest(id).find(({ context }) => context === 'Http'),
    `the line of the request ${id}`,
  );

beforeAll(async () => {
  database = await createTestDatabase();
  // Who starts on an empty database is told a first token, which is no line of the log.
  await query(database.url, `INSERT INTO users (name) VALUES ('somebody')`);
  gated = await gate(database.url);
  service = await startSessionService(
    {
      LOG_LEVEL: 'verbose',
      ANTHROPIC_API_KEY: SECRETS.apiKey,
      METRICS_PORT: '0',
    },
    { databaseUrl: gated.url },
  );
  sessions = new SessionsOf(service, service);
});

afterAll(async () => {
  await leaveNothing(service, [sessions]);
  await service.stop();
  await gated.stop();
  await database.drop();
});

describe('each request', () => {
  test('has one line with its id, which the answer tells', async () => {
    const { headers } = await sessions.http.get('/agents?token=x', {
      headers: { 'X-Request-Id': 'from-the-caller:1' },
    });
    expect(headers['x-request-id']).toBe('from-the-caller:1');
    expect(await lineOf('from-the-caller:1')).toMatchObject({
      level: 'info',
      context: 'Http',
      msg: 'GET /agents 200',
      route: '/agents',
      path: '/agents',
      status: 200,
      user_id: service.userId,
    });
    expect(ofRequest('from-the-caller:1')).toHaveLength(1);
  });

  test('gets an id of its own when the caller has none, or one that is no id', async () => {
    const answers = await Promise.all(
      ['', 'a b', 'x'.repeat(129)].map((id) =>
        sessions.http.get('/agents', { headers: { 'X-Request-Id': id } }),
      ),
    );
    const ids = answers.map(({ headers }) => String(headers['x-request-id']));
    expect(new Set(ids).size).toBe(3);
    for (const id of ids) {
      expect(id).toMatch(/^[0-9a-f-]{36}$/);
      expect(await lineOf(id)).toMatchObject({ status: 200 });
    }
  });

  test('has its id in every answer and its line, when it is refused, too', async () => {
    const refusals = await Promise.all([
      new HttpClient(service.url).get('/agents'),
      sessions.http.get('/nothing'),
      sessions.http.get('/%zz'),
      sessions.http.post('/agents', undefined, { raw: '{' }),
      sessions.http.get('/agents', { headers: { host: '' } }),
    ]);
    for (const { headers, status } of refusals) {
      expect(headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
      expect(await lineOf(String(headers['x-request-id']))).toMatchObject({ status });
    }
  });

  test('has a line when its client hangs up', async () => {
    const id = await sessions.create('sleep 600');
    const stream = sessions.stream(id, { headers: { 'X-Request-Id': 'hung-up' } });
    await stream.until(({ events }) => events.length > 0);
    await stream.abort();
    expect(await lineOf('hung-up')).toMatchObject({ level: 'info', status: 200, session_id: id });
    await sessions.http.post(`/sessions/${id}/terminate`);
  });

  test('that asks after the process is only told of in detail', async () => {
    await sessions.http.get('/healthz', { headers: { 'X-Request-Id': 'probe' } });
    expect(await lineOf('probe')).toMatchObject({ level: 'debug', status: 200 });
  });
});

test('lines about a session and its turn have their ids', async () => {
  const { body, headers } = await sessions.post('exit 7');
  const stream = await sessions.stream(body.id, { headers: { 'X-Request-Id': 'stream' } }).end();
  expect(stream.last.code).toBe(7);
  const [turn] = await sessions.turns(body.id);
  const ended = await eventually(
    () => lines().find(({ turn_id, context }) => turn_id === turn?.id && context === 'TurnRunner'),
    'the line of the turn',
  );
  expect(ended).toMatchObject({ session_id: body.id, msg: 'The turn has failed', exit_code: 7 });
  expect(ended.request_id).toBeUndefined();
  expect(await lineOf(String(headers['x-request-id']))).toMatchObject({ session_id: body.id });
  expect(await lineOf('stream')).toMatchObject({ session_id: body.id, status: 200 });
});

test('no secret is in the log: not of a session, not of the configuration, no wrong token', async () => {
  const environment_id = await sessions.createEnvironment({
    env_vars: { KEY: SECRETS.variable },
    networking: { type: 'limited' },
  });
  const agent_id = await sessions.createAgent({
    mcp_servers: [
      {
        type: 'http',
        name: 'remote',
        url: 'https://mcp.example.com',
        headers: { A: SECRETS.header },
      },
    ],
  });
  const url = 'http://repository.invalid/a.git';
  const repository = { type: 'git_repository', url, authorization_token: SECRETS.repositoryToken };
  const failed = await sessions.run('true', { agent_id, environment_id, resources: [repository] });
  expect(failed.last.type).toBe('error');
  const run = await sessions.run('echo "$KEY"; exit 1', { agent_id, environment_id });
  expect(run.output()).toBe('[redacted]\n');
  const wrong = new HttpClient(service.url, WRONG_TOKEN);
  for (const path of ['/agents', `/agents/${WRONG_TOKEN}`, `/agents?token=${service.token}`]) {
    expect((await wrong.get(path)).status).toBe(401);
  }
  await wrong.get(`/${service.token}`, { headers: { 'X-Request-Id': 'path' } });
  // It was there to be taken out.
  expect((await lineOf('path')).path).toBe('/[redacted]');
  const log = service.logs();
  const { password } = new URL(gated.url);
  const secrets = { ...SECRETS, WRONG_TOKEN, token: service.token, password };
  const found = Object.entries(secrets).filter(
    ([, secret]) => secret !== '' && log.includes(secret),
  );
  expect(found).toEqual([]);
});

test('an outage of the database is told when it begins and when it ends, and not in between', async () => {
  const metrics = /Metrics on (http:[^\s"]+)/.exec(service.logs())?.[1] ?? '';
  const scrape = async () => parseScrape(await (await fetch(metrics)).text());
  const figure = async (name: string): Promise<number | undefined> =>
    (await scrape()).get(`agent_sessions_${name}`)?.samples[0]?.value;
  const id = await sessions.create('echo up; while ! [ -e stop ]; do echo line; sleep 0.02; done');
  await sessions.stream(id).until((stream) => stream.output().startsWith('up\n'));
  const before = lines().length;
  gated.shut();
  const refused = await eventually(async () => {
    const { status, headers } = await sessions.http.get('/sessions');
    return status === 503 && String(headers['x-request-id']);
  }, 'a request to be refused');
  for (let count = 0; count < 5; count += 1) await sessions.http.get(`/sessions/${id}`);
  await eventually(async () => ((await figure('spool_lag_bytes')) ?? 0) > 20, 'output to wait');
  expect(await figure('database_available')).toBe(0);
  await eventually(async () => {
    const { samples = [] } =
      (await scrape()).get('agent_sessions_maintenance_failures_total') ?? {};
    return samples.some(({ value }) => value >= 4);
  }, 'a task to fail again and again');
  gated.open();
  const back = await eventually(async () => {
    const { status } = await sessions.http.get(`/sessions/${id}`);
    return status === 200 && (await figure('database_available')) === 1;
  }, 'the database to be back');
  expect(back).toBe(true);
  await eventually(
    async () => ((await figure('spool_lag_bytes')) ?? 1) < 100,
    'output to be written',
  );

  expect(await lineOf(refused)).toMatchObject({
    level: 'warn',
    status: 503,
    reason: 'the database is unavailable',
  });
  const meanwhile = lines().slice(before);
  const told = meanwhile.filter(({ context }) => context === 'Database').map(({ msg }) => msg);
  expect(told).toEqual([
    expect.stringContaining('The database is unavailable: '),
    expect.stringMatching(/^The database is available again, after [\d.]+ s$/),
  ]);
  expect(meanwhile.filter(({ err }) => err !== undefined)).toEqual([]);
  const others = meanwhile
    .filter(({ level, context }) => level !== 'debug' && !['Http', 'Database'].includes(context))
    .map(({ context }) => context);
  // Each of them once: the listening connection, and the log's writer.
  expect(others.length).toBe(new Set(others).size);
  await sessions.http.post(`/sessions/${id}/terminate`);
});

test('all lines are objects with the fields that the documentation lists', () => {
  const documented = new Set(
    [...readFileSync('docs/observability.md', 'utf8').matchAll(/^\| ((?:`\w+`(?:, )?)+) +\|/gm)]
      .flatMap(([, names = '']) => [...names.matchAll(/`(\w+)`/g)])
      .map(([, name]) => name),
  );
  const all = lines();
  const fields = new Set(all.flatMap((line) => Object.keys(line)));
  expect([...fields].filter((field) => !documented.has(field))).toEqual([]);
  const always = ['level', 'time', 'pid', 'context', 'msg'];
  const lacking = all.filter((line) => always.some((field) => !(field in line)));
  expect(lacking).toEqual([]);
});
