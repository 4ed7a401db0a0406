import type { AppConfig } from '../config/app-config.js';
import { lockDataDir } from './embedded/data-dir.js';
import { startEmbeddedPostgres } from './embedded/embedded-postgres.js';
import { setTimeout as delay } from 'node:timers/promises';
import type { QueryRunner } from 'typeorm';
import { createDataSource } from './data-source.js';

/** A database that this process may use until it calls `stop`, with its data folder. */
export interface OpenDatabase {
  url: string;
  /** Makes a service that starts on the same folder wait instead of failing. */
  stopping(): void;
  stop(): Promise<void>;
}

/**
 * Opens the configured database, or an embedded PostgreSQL in the data folder. Locks the folder in both cases: shared
 * for a configured database, exclusive for an embedded one.
 * @param options.alone lock the folder exclusively for either database
 */
export async function openDatabase(
  config: AppConfig,
  options: { log: (line: string) => void; alone?: boolean },
): Promise<OpenDatabase> {
  const own = config.databaseUrl === undefined;
  const lock = await lockDataDir(
    config.dataDir,
    own || options.alone === true ? 'exclusive' : 'shared',
  );
  try {
    const postgres = own
      ? await startEmbeddedPostgres({ dataDir: config.dataDir, log: options.log })
      : undefined;
    return {
      url: postgres?.url ?? config.databaseUrl ?? '',
      stopping: () => lock.stopping(),
      stop: async () => {
        await postgres?.stop();
        await lock.release();
      },
    };
  } catch (error) {
    await lock.release();
    throw error;
  }
}

/** The advisory lock of migrations. Any number will do, but it must be the same in every version. */
const LOCK = 4_726_001_187;
const WAIT_LIMIT_MS = 120_000;
const LOCK_NOT_AVAILABLE = '55P03';

/**
 * Runs the pending migrations. Processes that start together take turns. They poll for the lock, because waiting inside
 * PostgreSQL would deadlock with `CREATE INDEX CONCURRENTLY`.
 */
export async function migrate(url: string): Promise<void> {
  const dataSource = createDataSource({ url, poolSize: 2, migrates: true });
  await dataSource.initialize();
  const lock = dataSource.createQueryRunner();
  try {
    await acquire(lock);
    await retryWhileLocked(() => dataSource.runMigrations());
  } finally {
    // Ends the session, which also releases the lock.
    await lock.release();
    await dataSource.destroy();
  }
}

/**
 * A migration that cannot get its locks soon gives up and is retried, so that the previous version of the service can
 * go on meanwhile. Each migration has its own transaction, so that finished ones are kept.
 */
async function retryWhileLocked(run: () => Promise<unknown>): Promise<void> {
  const giveUpAt = performance.now() + WAIT_LIMIT_MS;
  for (;;) {
    try {
      await run();
      return;
    } catch (error) {
      const { code } = error as { code?: unknown };
      if (code !== LOCK_NOT_AVAILABLE || performance.now() > giveUpAt) throw error;
      await delay(250 + Math.random() * 250);
    }
  }
}

async function acquire(runner: QueryRunner): Promise<void> {
  const giveUpAt = performance.now() + WAIT_LIMIT_MS;
  for (;;) {
    const [row] = (await runner.query('SELECT pg_try_advisory_lock($1) AS locked', [LOCK])) as [
      { locked: boolean },
    ];
    if (row.locked) return;
    if (performance.now() > giveUpAt) {
      throw new Error('Another process has been migrating the database for two minutes');
    }
    await delay(100);
  }
}
