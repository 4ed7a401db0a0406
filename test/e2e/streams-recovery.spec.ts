import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { PostgresProxy } from '../faults/postgres-proxy.js';
import { EventStreamClient } from '../support/event-stream-client.js';
import { query, type Service } from '../support/service.js';
import { eventually, SessionsOf, startSessionService } from '../support/sessions.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';

const STREAMS = 600;
/** Each way: with 4 connections and a question for each stream, the last one would wait for two minutes. */
const DELAY_MS = 200;

let database: TestDatabase;
let proxy: PostgresProxy;
let service: Service;
let sessions: SessionsOf;
beforeAll(async () => {
  database = await createTestDatabase();
  const direct = new URL(database.url);
  proxy = await PostgresProxy.start(`${direct.searchParams.get('host')}/.s.PGSQL.${direct.port}`);
  const url = new URL(database.url);
  url.search = '';
  url.hostname = '127.0.0.1';
  url.port = String(proxy.port);
  service = await startSessionService(
    { APP_ROLE: 'api', DATABASE_POOL_SIZE: '4', HEARTBEAT_SECONDS: '60' },
    { databaseUrl: url.href },
  );
  sessions = new SessionsOf(service, service);
});
afterAll(async () => {
  await service.stop();
  await proxy.close();
  await database.drop();
});

test('many streams go on soon after the database was away, and leave room for requests', async () => {
  const agentId = await sessions.createAgent();
  const rows = await query<{ id: string }>(
    database.url,
    `WITH session AS (
       INSERT INTO sessions (user_id, agent_id, agent_version, provider, timeout, resources, status)
       SELECT $1, $2, 1, 'shell', 60, '[]', 'running' FROM generate_series(1, ${STREAMS})
       RETURNING id
     )
     INSERT INTO turns (session_id, turn_number, prompt, timeout, status, lease_owner, lease_expires_at)
     SELECT id, 1, 'x', 60, 'running', 'somebody', now() + interval '1 hour' FROM session
     RETURNING session_id AS id`,
    [service.userId, agentId],
  );
  const streams = rows.map(
    ({ id }) =>
      new EventStreamClient(`${service.url}/sessions/${id}/stream`, { token: service.token }),
  );
  await eventually(() => streams.every(({ events }) => events.length > 0), 'all to have begun');

  // They end while nobody is told of it.
  proxy.reset();
  await query(
    database.url,
    `UPDATE turns SET status = 'failed', error = 'over', ended_at = now(), lease_owner = NULL`,
  );
  await query(database.url, `UPDATE sessions SET status = 'failed', error = 'over'`);
  proxy.delay(DELAY_MS);
  await Promise.all(streams.map((stream) => stream.end()));
  expect(streams.map(({ last }) => last.message)).toEqual(streams.map(() => 'over'));
  expect((await sessions.http.get('/agents')).status).toBe(200);
  expect(service.logs()).not.toContain('timeout exceeded');
  proxy.delay(0);
});
