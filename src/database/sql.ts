import { Injectable, Logger, Optional } from '@nestjs/common';
import { isDatabaseUnavailable } from '../common/database-errors.js';
import { Pool, type PoolClient, type PoolConfig, type QueryResultRow } from 'pg';
import { DataSource } from 'typeorm';

/**
 * Converts PostgreSQL's text format of a `timestamptz` in a UTC session (`2026-01-31 12:00:00.5+00`) to the format of
 * the API: ISO 8601, six fractional digits, `+00:00`. A Date would lose the microseconds.
 */
export function formatTimestamp(text: string): string {
  const match = /^(\d{4,}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\+00$/.exec(text);
  if (!match) throw new Error(`Not a timestamp of a UTC session: ${text}`);
  return `${match[1]}T${match[2]}.${(match[3] ?? '').padEnd(6, '0')}+00:00`;
}

/**
 * Tracks whether the database answers, by the results of queries. Logs once when it becomes unavailable and once when
 * it is back, so that tasks that fail during an outage need not log it.
 */
@Injectable()
export class Outage {
  private readonly logger = new Logger('Database');
  /** When the outage began, by the monotonic clock in milliseconds; `undefined` while the database answers. */
  private since: number | undefined;
  private failures = 0;
  private recoveries = 0;

  get isOver(): boolean {
    return this.since === undefined;
  }

  /** Runs a query and records whether the database answered. */
  async watch<T>(ask: () => Promise<T>): Promise<T> {
    const { failures, recoveries } = this;
    try {
      const answer = await ask();
      // The answer to a query that was sent before the outage does not end it.
      if (this.since !== undefined && failures === this.failures) this.end(this.since);
      return answer;
    } catch (error) {
      // The failure of a query that was sent before the recovery does not begin a new outage.
      if (recoveries === this.recoveries && isDatabaseUnavailable(error)) this.begin(error);
      throw error;
    }
  }

  private begin(error: unknown): void {
    this.failures += 1;
    if (this.since !== undefined) return;
    this.since = performance.now();
    this.logger.warn(`The database is unavailable: ${String(error)}`);
  }

  private end(since: number): void {
    this.since = undefined;
    this.recoveries += 1;
    const seconds = ((performance.now() - since) / 1000).toFixed(1);
    this.logger.log(`The database is available again, after ${seconds} s`);
  }
}

/** A statement with a name: prepared once on each connection, and then cheap. The same name means the same text. */
export interface Statement {
  readonly name: string;
  readonly text: string;
  /** How long to wait for the result, if not the default. The statement may be executed even after this timeout. */
  readonly timeoutMs?: number;
}

/** Runs statements, on the pool or inside a transaction. */
export interface SqlExecutor {
  query<Row extends QueryResultRow>(
    statement: Statement,
    values?: readonly unknown[],
  ): Promise<Row[]>;
}

/**
 * What TypeORM uses of node-postgres, for its option `driver`: the pool that TypeORM opens and closes is kept here, so
 * that statements can use it directly. A named statement costs about half of what TypeORM takes to read a row by its key.
 */
export class SharedPool {
  private opened: Pool | undefined;
  readonly Pool: new (options: PoolConfig) => Pool;

  constructor() {
    const keep = (pool: Pool): void => void (this.opened = pool);
    this.Pool = class extends Pool {
      constructor(options: PoolConfig) {
        super(options);
        keep(this);
      }
    };
  }

  get pool(): Pool {
    if (!this.opened) throw new Error('The data source is not initialized');
    return this.opened;
  }
}

/** Hand-written SQL for hot paths, on the same pool that TypeORM uses. Used by repositories only. */
@Injectable()
export class Sql implements SqlExecutor {
  /** @param outage is informed of every result and failure, if given. */
  constructor(
    private readonly dataSource: DataSource,
    @Optional() private readonly outage?: Outage,
  ) {}

  async query<Row extends QueryResultRow>(
    statement: Statement,
    values: readonly unknown[] = [],
  ): Promise<Row[]> {
    const query = queryOf(statement, values);
    return (await this.watch(() => this.pool.query<Row>(query))).rows;
  }

  /** Runs `work` in one READ COMMITTED transaction; rolls back when it throws. Nothing slow belongs inside. */
  async transaction<T>(work: (sql: SqlExecutor) => Promise<T>): Promise<T> {
    return this.watch(() => this.transact(work));
  }

  private watch<T>(ask: () => Promise<T>): Promise<T> {
    return this.outage ? this.outage.watch(ask) : ask();
  }

  private async transact<T>(work: (sql: SqlExecutor) => Promise<T>): Promise<T> {
    const client = await this.pool.connect();
    let broken: Error | undefined;
    // A connection that is lost between two statements emits an event, which would end the process if nobody listened.
    const onLost = (error: Error): void => {
      broken = error;
    };
    client.on('error', onLost);
    try {
      await client.query('BEGIN');
      const result = await work(executorOn(client));
      await client.query('COMMIT');
      return result;
    } catch (error) {
      // After a statement that was not answered, ROLLBACK would not be answered either; closing the connection has the
      // same effect.
      if (error instanceof Error && isDatabaseUnavailable(error)) broken = error;
      else {
        await client.query('ROLLBACK').catch((failure: Error) => {
          broken = failure;
        });
      }
      throw error;
    } finally {
      client.off('error', onLost);
      client.release(broken);
    }
  }

  /** The pool's connections: total, idle, and the number of waiting requests. */
  get connections(): { total: number; idle: number; waiting: number } {
    const { totalCount, idleCount, waitingCount } = this.pool;
    return { total: totalCount, idle: idleCount, waiting: waitingCount };
  }

  private get pool(): Pool {
    const { options } = this.dataSource;
    const shared: unknown = 'driver' in options ? options.driver : undefined;
    if (!(shared instanceof SharedPool)) throw new Error('The data source shares no pool');
    return shared.pool;
  }
}

function executorOn(client: PoolClient): SqlExecutor {
  return {
    query: async <Row extends QueryResultRow>(
      statement: Statement,
      values: readonly unknown[] = [],
    ) => (await client.query<Row>(queryOf(statement, values))).rows,
  };
}

function queryOf({ name, text, timeoutMs }: Statement, values: readonly unknown[]) {
  return { name, text, values: [...values], query_timeout: timeoutMs };
}
