import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { query, type Service } from '../support/service.js';
import { eventually, SessionsOf, startSessionService } from '../support/sessions.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';

const ROWS = 12_000;

let database: TestDatabase;
let service: Service;
let sessions: SessionsOf;
beforeAll(async () => {
  database = await createTestDatabase();
  service = await startSessionService({}, { databaseUrl: database.url });
  sessions = new SessionsOf(service, service);
});
afterAll(async () => {
  await service.stop();
  await database.drop();
});

const rowsLeft = async (id: string): Promise<number> => {
  const [row] = await query<{ rows: number }>(
    database.url,
    'SELECT count(*)::int AS rows FROM event_log WHERE session_id = $1',
    [id],
  );
  return row?.rows ?? 0;
};

test('a session with a large log is gone at once, and its log soon, whoever dies in between', async () => {
  const id = await sessions.completed();
  await query(
    database.url,
    `INSERT INTO event_log (session_id, id, created_at, turn, kind, data)
     SELECT $1, 1000 + n, now(), 1, 3, 'x' FROM generate_series(1, ${ROWS}) n`,
    [id],
  );
  // Each row takes a while, as it does in a log of gigabytes.
  await query(
    database.url,
    `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
     $$ BEGIN PERFORM pg_sleep(0.0005); RETURN OLD; END $$`,
  );
  await query(
    database.url,
    'CREATE TRIGGER slow BEFORE DELETE ON event_log FOR EACH ROW EXECUTE FUNCTION slow()',
  );
  expect((await sessions.http.delete(`/sessions/${id}/delete`)).status).toBe(200);
  expect(await rowsLeft(id)).toBeGreaterThan(ROWS / 2);
  expect((await sessions.http.get(`/sessions/${id}`)).status).toBe(404);
  expect((await sessions.http.get(`/sessions/${id}/stream`)).status).toBe(404);
  expect((await sessions.http.delete(`/sessions/${id}/delete`)).status).toBe(404);

  await service.kill9();
  expect(await rowsLeft(id)).toBeGreaterThan(0);
  await service.stop();
  service = await startSessionService({}, { databaseUrl: database.url });
  await eventually(async () => (await rowsLeft(id)) === 0, 'the log to be gone');
  await eventually(
    async () => (await query(database.url, 'SELECT 1 FROM deleted_logs')).length === 0,
    'the record to be gone',
  );
});
