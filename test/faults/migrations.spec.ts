import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Client } from 'pg';
import { DataSource, type MigrationInterface, type QueryRunner } from 'typeorm';
import * as migrations from '../../migrations/index.js';
import { dataSourceOptions } from '../../src/database/data-source.js';
import { untilBlocked } from '../support/locks.js';
import { eventually } from '../support/sessions.js';
import { insertUserWithAgent, insertWaitingTurns } from '../support/waiting-turn.js';
import { query, type Service, startService } from '../support/service.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';
import { ROOT } from './service-process.js';

const ALL = Object.values(migrations) as (new () => MigrationInterface)[];
/** Migrations of later versions, which run beside a service of an older version. */
const LATER = ALL.filter(({ name }) => Number(name.slice(-13)) >= 1763700000030);
/** A generated column whose expression is dropped keeps its values. */
const TAKES_AWAY =
  /\bDROP (?!INDEX CONCURRENTLY IF EXISTS|EXPRESSION)|\bRENAME\b|\bSET NOT NULL\b|ALTER COLUMN \w+ (SET DATA )?TYPE/i;
const CHANGES_ROWS = /^\s*(WITH|UPDATE|DELETE|INSERT)\b/i;

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
  });

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
    // Whoever comes after a waiting migration waits with it, but not until the lock is free: the migration gives up and
    // tries again.
    for (let tries = 0; tries < 3; tries += 1) {
      await untilBlocked(database.url);
      await query(database.url, 'SELECT count(*) FROM sandboxes');
    }
    expect(done).toBe(false);
    await slow.query('COMMIT');
    await slow.end();
    await migrated;
    await query(database.url, 'SELECT reaper, reaper_until FROM sandboxes');
  });

  test.each(LATER.map((migration) => [migration.name, migration] as const))(
    '%s only adds, and changes no rows while it holds its locks',
    async (_name, Migration) => {
      const statements: string[] = [];
      const recorder = { query: async (statement: string) => void statements.push(statement) };
      const migration = new Migration();
      await migration.up(recorder as unknown as QueryRunner);
      for (const statement of statements) {
        expect(statement).not.toMatch(TAKES_AWAY);
        expect(statement).not.toMatch(CHANGES_ROWS);
        for (const [column] of statement.matchAll(/ADD COLUMN[^,;]*NOT NULL[^,;]*/gi)) {
          expect(column).toMatch(/DEFAULT/);
        }
        // Indexes that are built beside a running service need a migration without a transaction; the others have one.
        expect(/CONCURRENTLY/.test(statement)).toBe(migration.transaction === false);
      }
    },
  );

  test('leave stored rows unchanged, also for a service of the previous version', async () => {
    await query(database.url, 'DROP SCHEMA public CASCADE');
    await query(database.url, 'CREATE SCHEMA public');
    const before = new DataSource({
      ...dataSourceOptions({ url: database.url, poolSize: 1, migrates: true }),
      migrations: ALL.filter((migration) => !LATER.includes(migration)),
    });
    await before.initialize();
    await before.runMigrations();
    // Writes rows as that version does.
    const old = await insertUserWithAgent(before);
    await insertWaitingTurns(before, old, 3);
    const sandboxes = {
      active: '',
      idle: `, idle_since = now() - interval '1 hour'`,
      deleting: `, doomed_at = now() - interval '1 hour'`,
      warming: `, doomed_at = now(), reaper = 'warm pool', reaper_until = now()`,
    };
    for (const [name, columns] of Object.entries(sandboxes)) {
      const [{ id }] = (await before.query(
        `INSERT INTO sandboxes (session_id, driver) VALUES (gen_random_uuid(), $1)
         RETURNING session_id AS id`,
        [name],
      )) as [{ id: string }];
      await before.query(`UPDATE sandboxes SET driver = driver${columns} WHERE session_id = $1`, [
        id,
      ]);
    }
    await (await load()).migrate(database.url);
    // The driver of each row says which state it has to have.
    expect(
      await query(
        database.url,
        `SELECT driver, state, owner, extract(hour FROM now() - state_since)::int AS hours
         FROM sandboxes ORDER BY driver`,
      ),
    ).toEqual([
      { driver: 'active', state: 'active', owner: null, hours: 0 },
      { driver: 'deleting', state: 'deleting', owner: null, hours: 1 },
      { driver: 'idle', state: 'idle', owner: null, hours: 1 },
      { driver: 'warming', state: 'warming', owner: 'pool', hours: 0 },
    ]);
    await query(database.url, 'DELETE FROM sandboxes');
    const late = await insertUserWithAgent(before);
    await insertWaitingTurns(before, late, 3);
    await before.destroy();

    service = await startService({ databaseUrl: database.url });
    expect((await service.http.get('/readyz')).status).toBe(200);
    await eventually(async () => {
      const users = await query<{ stored: string; bytes: string }>(
        database.url,
        `SELECT u.stored_bytes AS stored, stored_text_bytes(v.snapshot, NULL) AS bytes
         FROM agent_versions v JOIN agents a ON a.id = v.agent_id JOIN users u ON u.id = a.user_id
         WHERE u.id = ANY ($1)`,
        [[old.id, late.id]],
      );
      expect(users).toHaveLength(2);
      return users.every(({ stored, bytes }) => Number(stored) === Number(bytes));
    }, 'what was stored before to be counted, once');
  });
});
