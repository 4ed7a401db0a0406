import { types as postgresTypes } from 'pg';
import { DataSource, type DataSourceOptions } from 'typeorm';
import * as migrations from '../../migrations/index.js';
import { formatTimestamp, SharedPool } from './sql.js';

/** The URL of the configured or embedded database, with the password. A class so that it can be injected. */
export class DatabaseUrl {
  constructor(readonly value: string) {}

  toJSON(): string {
    return '[database url]';
  }
}

const TIMESTAMPTZ = 1184;
const INT8 = 20;
/** A statement that waits for a table lock makes all later ones wait behind it, so it must not wait long. */
const MIGRATION_LOCK_MS = 2_000;

/** node-postgres's parsers, but timestamps stay text with microseconds and bigints (all ours fit) become numbers. */
const types = {
  getTypeParser: (oid: number, format?: 'text' | 'binary') => {
    if (oid === TIMESTAMPTZ) return formatTimestamp;
    if (oid === INT8) return Number;
    return postgresTypes.getTypeParser(oid, format);
  },
};

/**
 * The options of every connection to the database: UTC, which the timestamp parser relies on, and timeouts, so that
 * requests fail with 503 instead of hanging when the database is unreachable.
 */
export function dataSourceOptions(options: {
  url: string;
  poolSize: number;
  applicationName?: string;
  /**
   * Options for migrations: no statement timeout, but a short lock timeout, so that others do not wait behind its
   * locks.
   */
  migrates?: boolean;
}): DataSourceOptions {
  return {
    type: 'postgres',
    driver: new SharedPool(),
    url: options.url,
    applicationName: options.applicationName ?? 'agent-session-service',
    poolSize: options.poolSize,
    connectTimeoutMS: 5_000,
    synchronize: false,
    migrationsRun: false,
    migrations: Object.values(migrations),
    migrationsTransactionMode: 'each',
    extra: {
      types,
      keepAlive: true,
      keepAliveInitialDelayMillis: 10_000,
      ...(options.migrates
        ? { options: `-c TimeZone=UTC -c lock_timeout=${MIGRATION_LOCK_MS}` }
        : {
            options: '-c TimeZone=UTC',
            // A timeout is the only way to notice a connection whose peer vanished silently.
            query_timeout: 20_000,
            // A session whose client is gone must not hold its locks forever.
            statement_timeout: 30_000,
            idle_in_transaction_session_timeout: 30_000,
          }),
    },
  };
}

export function createDataSource(options: Parameters<typeof dataSourceOptions>[0]): DataSource {
  return new DataSource(dataSourceOptions(options));
}
