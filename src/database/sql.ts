import { Injectable, Optional } from '@nestjs/common';
import type { Pool, PoolClient, QueryResultRow } from 'pg';
import { DataSource } from 'typeorm';
import { isDatabaseUnavailable } from '../common/database-unavailable.js';
import { Outage } from './outage.js';

/** A statement with a name: prepared once on each connection, and then cheap. The same name means the same text. */
export interface Statement {
  readonly name: string;
  readonly text: string;
  /** How long to wait for the answer, if not as long as usual. It may be carried out all the same. */
  readonly timeoutMs?: number;
}

/** Runs statements, on the pool or inside a transaction. */
export interface SqlExecutor {
  query<Row extends QueryResultRow>(
    statement: Statement,
    values?: readonly unknown[],
  ): Promise<Row[]>;
}

/** Hand-written SQL for hot paths, on the same pool that TypeORM uses. Used by repositories only. */
@Injectable()
export class Sql implements SqlExecutor {
  /** @param outage told of every answer and failure, if there is one. */
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
    // A connection that is lost between two statements says so by an event, and one that nobody hears ends the process.
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
      // Behind a statement that is not answered, neither would a ROLLBACK be: the end of the connection does the same.
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

  /** The pool's connections: how many there are, are free, and are waited for. */
  get connections(): { total: number; idle: number; waiting: number } {
    const { totalCount, idleCount, waitingCount } = this.pool;
    return { total: totalCount, idle: idleCount, waiting: waitingCount };
  }

  private get pool(): Pool {
    return (this.dataSource.driver as unknown as { master: Pool }).master;
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
