import { DataSource } from 'typeorm';
import { ACCOUNT_ENTITIES } from '../auth/accounts.js';
import type { AppConfig } from '../config/app-config.js';
import { dataSourceOptions } from '../database/data-source.js';
import { findEmbeddedPostgres } from '../database/embedded/embedded-postgres.js';
import { migrate } from '../database/migrate.js';

/**
 * Where the database is: `DATABASE_URL`, or the PostgreSQL of the service that runs on the data folder.
 * @throws Error in one line when there is neither.
 */
export async function resolveDatabase(config: AppConfig): Promise<string> {
  if (config.databaseUrl !== undefined) return config.databaseUrl;
  const running = await findEmbeddedPostgres(config.dataDir);
  if (running) return running.url;
  throw new Error(
    `No service is running on ${config.dataDir}: start it, set DATA_DIR to its data folder, or set DATABASE_URL`,
  );
}

/** Runs `work` on the migrated database, and closes what it opened. */
export async function withDatabase<T>(
  config: AppConfig,
  work: (dataSource: DataSource) => Promise<T>,
): Promise<T> {
  const url = await resolveDatabase(config);
  await migrate(url);
  const dataSource = new DataSource({
    ...dataSourceOptions({ url, poolSize: 2, applicationName: 'agent-session-service cli' }),
    entities: ACCOUNT_ENTITIES,
  });
  await dataSource.initialize();
  try {
    return await work(dataSource);
  } finally {
    await dataSource.destroy();
  }
}
