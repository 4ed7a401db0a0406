import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { DataSource } from 'typeorm';
import { AgentVersionEntity, AgentEntity } from '../../src/agents/entities/agent.entity.js';
import { AccessTokenEntity, UserEntity } from '../../src/auth/entities/user.entity.js';
import { dataSourceOptions } from '../../src/database/data-source.js';
import {
  EnvironmentVersionEntity,
  EnvironmentEntity,
} from '../../src/environments/entities/environment.entity.js';
import { Session, Turn } from '../../src/sessions/entities/session.entity.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';

const ENTITIES = [
  UserEntity,
  AccessTokenEntity,
  EnvironmentEntity,
  EnvironmentVersionEntity,
  AgentEntity,
  AgentVersionEntity,
  Session,
  Turn,
];

/**
 * Map only what clients see: the queue's columns are for hand-written SQL alone, and triggers keep the sizes of versions.
 */
const PARTIAL = new Set<unknown>([Turn, AgentVersionEntity, EnvironmentVersionEntity]);

let database: TestDatabase;
let dataSource: DataSource;
beforeAll(async () => {
  database = await createTestDatabase();
  dataSource = new DataSource({
    ...dataSourceOptions({ url: database.url, poolSize: 4 }),
    entities: ENTITIES,
  });
  await dataSource.initialize();
});
afterAll(async () => {
  await dataSource.destroy();
  await database.drop();
});

/** Timestamps are text to the entities, because a Date would lose microseconds. */
const TYPES: Record<string, string> = { 'timestamp with time zone': 'text', ARRAY: 'text' };

it.each(ENTITIES.map((entity) => [entity.name, entity] as const))(
  '%s has the columns that the migrations made',
  async (_name, entity) => {
    const { tableName, columns, primaryColumns } = dataSource.getMetadata(entity);
    const actual = await dataSource.query<
      { column_name: string; is_nullable: 'YES' | 'NO'; data_type: string }[]
    >(
      `SELECT column_name, is_nullable, data_type FROM information_schema.columns WHERE table_name = $1`,
      [tableName],
    );
    expect(actual.length).toBeGreaterThan(0);
    const mapped = new Set(columns.map((column) => column.databaseName));
    const expected = actual.filter((row) => !PARTIAL.has(entity) || mapped.has(row.column_name));
    const byName = (rows: [string, boolean, string][]) =>
      rows.sort(([a], [b]) => a.localeCompare(b));
    expect(
      byName(
        columns.map(({ databaseName, isNullable, type }) => [
          databaseName,
          isNullable,
          String(type),
        ]),
      ),
    ).toEqual(
      byName(
        expected.map((row) => [
          row.column_name,
          row.is_nullable === 'YES',
          TYPES[row.data_type] ?? row.data_type,
        ]),
      ),
    );
    const keys = await dataSource.query<{ column_name: string }[]>(
      `SELECT column_name FROM information_schema.key_column_usage k
         JOIN information_schema.table_constraints c USING (constraint_name, table_name)
        WHERE table_name = $1 AND constraint_type = 'PRIMARY KEY'`,
      [tableName],
    );
    expect(keys.map((key) => key.column_name).sort()).toEqual(
      primaryColumns.map((column) => column.databaseName).sort(),
    );
    expect(await dataSource.manager.find(entity)).toEqual([]);
  },
);
