import { setTimeout as delay } from 'node:timers/promises';
import type { QueryRunner } from 'typeorm';
import { createDataSource } from './data-source.js';

/** Any number, the same in every version: "somebody migrates this database". */
const LOCK = 4_726_001_187;
const WAIT_LIMIT_MS = 120_000;
const LOCK_NOT_AVAILABLE = '55P03';

/**
 * Brings the schema up to date. Processes that start together take turns: the lock is polled, because waiting inside
 * PostgreSQL would deadlock with `CREATE INDEX CONCURRENTLY`.
 */
export async function migrate(url: string): Promise<void> {
  const dataSource = createDataSource({ url, poolSize: 2, migrates: true });
  await dataSource.initialize();
  const lock = dataSource.createQueryRunner();
  try {
    await acquire(lock);
    await insist(() => dataSource.runMigrations());
  } finally {
    // Ends the session, and with it the lock.
    await lock.release();
    await dataSource.destroy();
  }
}

/**
 * A migration that does not get its locks soon lets go, and comes back: the service of the version before goes on
 * meanwhile. Each migration is a transaction of its own, so that those that are done stay done.
 */
async function insist(run: () => Promise<unknown>): Promise<void> {
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
