import { Injectable, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import { Sql } from '../database/sql.js';
import { Metrics } from '../metrics/metrics.js';
import { Notifier } from './log-notifications.js';

/** How many days in advance partitions are created, so that there is time to repair a failing maintenance. */
const DAYS_AHEAD = 7;
const DAY_MS = 86_400_000;

const LIST = {
  name: 'partitions-list',
  text: `
    SELECT child.relname AS name FROM pg_inherits
    JOIN pg_class child ON child.oid = pg_inherits.inhrelid
    WHERE inhparent = 'event_log'::regclass ORDER BY 1`,
};
const TODAY = {
  name: 'partitions-today',
  text: `SELECT extract(epoch FROM date_trunc('day', now()))::float8 * 1000 AS today`,
};

/**
 * The log's partitions, one for each day (UTC). They are created in advance and dropped when the day is past retention.
 */
@Injectable()
export class LogPartitions {
  constructor(
    private readonly sql: Sql,
    private readonly config: AppConfig,
  ) {}

  /** Creates the missing partitions of today and the days ahead. Safe to run concurrently. */
  async ensure(): Promise<void> {
    const existing = new Set(await this.names());
    const today = await this.today();
    for (let day = 0; day <= DAYS_AHEAD; day += 1) {
      const start = today + day * DAY_MS;
      if (!existing.has(nameOf(start))) await this.create(start);
    }
  }

  /**
   * Drops every partition whose whole day is past retention.
   * @returns the names of the dropped partitions.
   */
  async dropExpired(): Promise<string[]> {
    const oldestKept = (await this.today()) - this.config.logRetentionDays * DAY_MS;
    const expired = (await this.names()).filter((name) => dayOf(name) < oldestKept);
    for (const name of expired) {
      // Waiting for the log's lock would block all readers and writers behind it, so this gives up and retries later.
      await this.sql.transaction(async (sql) => {
        await sql.query({ name: '', text: `SET LOCAL lock_timeout = '1s'` });
        await sql.query({ name: '', text: `DROP TABLE IF EXISTS ${name}` });
      });
    }
    return expired;
  }

  /** Returns the days without a partition and the partitions past retention. Changes nothing. */
  async survey(): Promise<{ missing: string[]; expired: string[] }> {
    const names = await this.names();
    const today = await this.today();
    const wanted = Array.from({ length: DAYS_AHEAD }, (_, day) => nameOf(today + day * DAY_MS));
    const oldestKept = today - this.config.logRetentionDays * DAY_MS;
    return {
      missing: wanted.filter((name) => !names.includes(name)),
      expired: names.filter((name) => dayOf(name) < oldestKept),
    };
  }

  private async create(start: number): Promise<void> {
    const name = nameOf(start);
    // Unlike CREATE … PARTITION OF, attaching does not block readers and writers of the log. The lock prevents two
    // processes from creating the same partition.
    await this.sql.transaction(async (sql) => {
      await sql.query({ name: '', text: `SELECT pg_advisory_xact_lock(hashtext('${name}'))` });
      const there = await sql.query<{ found: string | null }>({
        name: '',
        text: `SELECT to_regclass('${name}') AS found`,
      });
      if (there[0]?.found) return;
      await sql.query({
        name: '',
        text: `CREATE TABLE ${name} (LIKE event_log INCLUDING ALL)`,
      });
      await sql.query({
        name: '',
        text: `ALTER TABLE event_log ATTACH PARTITION ${name}
               FOR VALUES FROM ('${isoDay(start)}+00') TO ('${isoDay(start + DAY_MS)}+00')`,
      });
    });
  }

  private async names(): Promise<string[]> {
    return (await this.sql.query<{ name: string }>(LIST)).map((row) => row.name);
  }

  /** The database's clock, which also sets the time of the rows. */
  private async today(): Promise<number> {
    const [row] = await this.sql.query<{ today: number }>(TODAY);
    return row?.today ?? Date.now();
  }
}

function isoDay(time: number): string {
  return `${new Date(time).toISOString().slice(0, 10)} 00:00:00`;
}

function nameOf(start: number): string {
  return `event_log_${new Date(start).toISOString().slice(0, 10).replaceAll('-', '')}`;
}

/**
 * @returns the start of the partition's day. An unknown name gets a date in the future, so that it is never dropped.
 */
function dayOf(name: string): number {
  const match = /^event_log_(\d{4})(\d\d)(\d\d)$/.exec(name);
  return match ? Date.parse(`${match[1]}-${match[2]}-${match[3]}T00:00:00Z`) : Infinity;
}

/** Metrics of the log rows that this process writes. */
@Injectable()
export class LogMetrics implements OnModuleInit, OnApplicationShutdown {
  private rows = 0;
  private endSubscription: () => void = () => undefined;

  constructor(
    private readonly notifier: Notifier,
    private readonly metrics: Metrics,
  ) {}

  onModuleInit(): void {
    this.metrics.total(
      'log_rows',
      'Rows that this process has written into the log',
      () => this.rows,
    );
    this.endSubscription = this.notifier.on('log.committed', ({ rows }) => {
      this.rows += rows.length;
    });
  }

  onApplicationShutdown(): void {
    this.endSubscription();
  }
}
