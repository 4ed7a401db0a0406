import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { Client } from 'pg';
import { query, type Service, startService } from '../support/service.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';
import { ROOT } from './service-process.js';

const load = async () =>
  (await import(pathToFileURL(join(ROOT, 'dist/src/database/migrate.js')).href)) as {
    migrate: (url: string) => Promise<void>;
  };

describe('migrations', () => {
  let database: TestDatabase;
  let service: Service | undefined;

  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(async () => {
    await service?.stop();
    await database?.drop();
  });

  test('of processes that start together run once', async () => {
    await query(database.url, 'DROP SCHEMA public CASCADE');
    await query(database.url, 'CREATE SCHEMA public');
    const { migrate } = await load();
    await Promise.all([migrate(database.url), migrate(database.url), migrate(database.url)]);
    const names = await query<{ name: string }>(database.url, 'SELECT name FROM migrations');
    expect(new Set(names.map(({ name }) => name)).size).toBe(names.length);
    expect(names.length).toBeGreaterThan(5);
  }, 60_000);

  test('that cannot get a lock let the running service go on, and come back for it', async () => {
    const { migrate } = await load();
    // The schema of the version before.
    await query(database.url, 'ALTER TABLE sandboxes DROP COLUMN reaper, DROP COLUMN reaper_until');
    await query(database.url, `DELETE FROM migrations WHERE name LIKE 'SandboxReapers%'`);
    const slow = new Client({ connectionString: database.url });
    await slow.connect();
    await slow.query('BEGIN');
    await slow.query('SELECT * FROM sandboxes');

    const migrated = migrate(database.url);
    let done = false;
    void migrated.then(() => (done = true));
    const waits: number[] = [];
    for (const until = Date.now() + 6_000; Date.now() < until; await delay(50)) {
      const begun = Date.now();
      await query(database.url, 'SELECT count(*) FROM sandboxes');
      waits.push(Date.now() - begun);
    }
    expect(done).toBe(false);
    // Whoever comes after a waiting migration waits with it: two seconds at most, and room for a busy machine.
    expect(Math.max(...waits)).toBeLessThan(4_000);
    await slow.query('COMMIT');
    await slow.end();
    await migrated;
    await query(database.url, 'SELECT reaper, reaper_until FROM sandboxes');
  }, 60_000);

  test('only add: the service of the version before runs on the schema of this one', async () => {
    // What the version before inserts and reads still works without the columns that it does not know.
    const columns = await query<{ name: string }>(
      database.url,
      `SELECT table_name || '.' || column_name AS name FROM information_schema.columns
       WHERE table_schema = 'public' AND is_nullable = 'NO' AND column_default IS NULL
         AND (table_name, column_name) IN (('sandboxes', 'reaper'), ('sandboxes', 'reaper_until'))`,
    );
    expect(columns).toEqual([]);
    service = await startService({ databaseUrl: database.url });
    expect((await service.http.get('/readyz')).status).toBe(200);
  }, 60_000);
});
