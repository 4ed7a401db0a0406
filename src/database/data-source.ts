import { types as postgresTypes } from 'pg';
import { DataSource, type DataSourceOptions } from 'typeorm';
import * as migrations from '../../migrations/index.js';
import { formatTimestamp } from './timestamps.js';

const TIMESTAMPTZ = 1184;
const INT8 = 20;

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
      options: '-c TimeZone=UTC',
      query_timeout: 60_000,
      keepAlive: true,
      // A statement that outlives its client must not hold locks for ever.
      statement_timeout: 60_000,
      idle_in_transaction_session_timeout: 30_000,
    },
  };
}

export function createDataSource(options: Parameters<typeof dataSourceOptions>[0]): DataSource {
  return new DataSource(dataSourceOptions(options));
}
