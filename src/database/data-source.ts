import { types as postgresTypes } from 'pg';
import { DataSource, type DataSourceOptions } from 'typeorm';
import * as migrations from '../../migrations/index.js';
import { formatTimestamp } from './timestamps.js';

const TIMESTAMPTZ = 1184;
const INT8 = 20;
/** What waits for a table's lock makes everybody after it wait, too. */
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
 * The options of every connection to the database: UTC, so that the timestamp parser may rely on it; bounded waits, so
 * that a database that went away becomes a 503 and not a hang.
 */
export function dataSourceOptions(options: {
  url: string;
  poolSize: number;
  applicationName?: string;
  /** Changes the schema: takes as long as it takes, but does not keep others waiting behind its locks. */
  migrates?: boolean;
}): DataSourceOptions {
  return {
    type: 'postgres',
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
            // A connection whose peer vanished without a word is only noticed by waiting for it.
            query_timeout: 20_000,
            // A statement that outlives its client must not hold locks for ever.
            statement_timeout: 30_000,
            idle_in_transaction_session_timeout: 30_000,
          }),
    },
  };
}

export function createDataSource(options: Parameters<typeof dataSourceOptions>[0]): DataSource {
  return new DataSource(dataSourceOptions(options));
}
