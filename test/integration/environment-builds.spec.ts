import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { DataSource } from 'typeorm';
import { createDataSource } from '../../src/database/data-source.js';
import { Sql } from '../../src/database/sql.js';
import { EnvironmentBuilds } from '../../src/environments/environment-builds.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';

const OF = { id: randomUUID(), version: 1 };
const describeError = (error: unknown): string => (error as Error).message;

let database: TestDatabase;
let dataSource: DataSource;
let builds: EnvironmentBuilds;

beforeAll(async () => {
  database = await createTestDatabase();
  // On one connection, statements are executed in the order in which they are sent.
  dataSource = createDataSource({ url: database.url, poolSize: 1 });
  await dataSource.initialize();
  builds = new EnvironmentBuilds(new Sql(dataSource));
  await dataSource.query(
    `WITH owner AS (INSERT INTO users (name) VALUES ('owner') RETURNING id)
     INSERT INTO environments (id, user_id, packages, env_var_keys, setup_script, networking)
     SELECT $1, id, '[]', '{}', 'make', '{"type": "unrestricted"}' FROM owner`,
    [OF.id],
  );
});
afterAll(async () => {
  await dataSource.destroy();
  await database.drop();
});

it('the build of a session that waited for one that fails is the one that counts', async () => {
  const failing = Promise.withResolvers<void>();
  const building = Promise.withResolvers<void>();
  const waitFor = (what: Promise<void>) => async (onBuild: () => void) => {
    onBuild();
    await what;
  };
  const first = builds.during(OF, waitFor(failing.promise), describeError);
  const second = builds.during(OF, waitFor(building.promise), describeError);
  failing.reject(new Error('no such package'));
  await expect(first).rejects.toThrow('no such package');
  expect(await builds.last(OF)).toMatchObject({ status: 'failed', error: 'no such package' });
  building.resolve();
  await second;
  expect(await builds.last(OF)).toMatchObject({ status: 'ready', error: null });
});

it('an interrupted build stays until nobody renews it', async () => {
  const cut = builds.during(
    OF,
    async (onBuild) => {
      onBuild();
      throw new Error('the worker stops');
    },
    () => undefined,
  );
  await expect(cut).rejects.toThrow('the worker stops');
  await dataSource.query(`UPDATE environment_builds SET seen_at = now() - interval '59 seconds'`);
  expect(await builds.last(OF)).toMatchObject({ status: 'building', durationMs: null });
  await dataSource.query(`UPDATE environment_builds SET seen_at = now() - interval '61 seconds'`);
  expect(await builds.last(OF)).toBeNull();
});
