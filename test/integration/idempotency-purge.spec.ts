import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { DataSource } from 'typeorm';
import { createDataSource } from '../../src/database/data-source.js';
import { Sql } from '../../src/database/sql.js';
import { IdempotencyRepository } from '../../src/idempotency/repeatable-requests.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';

let database: TestDatabase;
let dataSource: DataSource;

beforeAll(async () => {
  database = await createTestDatabase();
  dataSource = createDataSource({ url: database.url, poolSize: 1 });
  await dataSource.initialize();
});
afterAll(async () => {
  await dataSource.destroy();
  await database.drop();
});

it('removes the keys of more than a day ago, and only these', async () => {
  const user = randomUUID();
  await dataSource.query('INSERT INTO users (id, name) VALUES ($1::uuid, $1::text)', [user]);
  for (const age of ['0', '23:59:30', '24:00:01', '72:00']) {
    await dataSource.query(
      `INSERT INTO idempotency_keys (user_id, route, key, body_hash, session_id, created_at)
       VALUES ($1, 'r', $2::text, '\\x00', gen_random_uuid(), now() - ($2::text)::interval)`,
      [user, age],
    );
  }
  await new IdempotencyRepository(new Sql(dataSource)).purge();
  const left: { key: string }[] = await dataSource.query(
    'SELECT key FROM idempotency_keys ORDER BY created_at DESC',
  );
  expect(left.map(({ key }) => key)).toEqual(['0', '23:59:30']);
});
