import {
  Injectable,
  type BeforeApplicationShutdown,
  Logger,
  type OnModuleInit,
} from '@nestjs/common';
import { isolate, isDatabaseUnavailable } from '../common/database-errors.js';
import { AppConfig } from '../config/app-config.js';
import { Sql } from '../database/sql.js';
import { Notifier } from '../event-log/log-notifications.js';
import { Cron, Interval } from '@nestjs/schedule';
import { TurnChanges } from '../files/changes/turn-changes.repository.js';
import { EventLogRepository } from '../event-log/event-log.repository.js';
import { LogPartitions } from '../event-log/log-partitions.js';
import { LostHosts } from './lost-hosts.service.js';
import { StoredBytes } from './stored-bytes.repository.js';
import { Metrics } from '../metrics/metrics.js';
import { IdempotencyRepository } from '../idempotency/repeatable-requests.js';
import { UsageRepository } from '../usage/usage.repository.js';
import { TurnFailures } from '../turns/turn-failure.repository.js';

// Skips locked turns, which get their notice in the next round. A notice counts as activity, so the next one comes after an
// equally long silence.
const NOTICE = {
  name: 'turns-stale',
  text: `
    UPDATE turns SET stale_count = stale_count + 1, active_at = clock_timestamp()
    WHERE id IN (
      SELECT id FROM turns
      WHERE id = ANY ($2) AND status = 'running'
        AND active_at <= now() - make_interval(secs => $1)
      FOR UPDATE SKIP LOCKED)
    RETURNING session_id AS id`,
};
const SILENT = {
  name: 'turns-silent',
  text: `
    SELECT id FROM turns
    WHERE status = 'running' AND active_at <= now() - make_interval(secs => $1)`,
};

/** Publishes notices of running turns without recent output. The turns themselves continue. */
@Injectable()
export class StaleTurns {
  constructor(
    private readonly sql: Sql,
    private readonly notifier: Notifier,
    private readonly config: AppConfig,
  ) {}

  /**
   * Records one notice for each silent turn and notifies the streams. A turn that cannot be updated does not prevent
   * the notices of others.
   */
  async publish(): Promise<void> {
    const seconds = this.config.staleAfterSeconds;
    const silent = await this.sql.query<{ id: string }>(SILENT, [seconds]);
    const sessions = await isolate(
      silent.map(({ id }) => id),
      (ids) => this.notice(seconds, ids),
      () => [],
    );
    for (const id of sessions) this.notifier.changed(id);
  }

  /** @returns the sessions with a new notice. */
  private notice(seconds: number, turnIds: readonly string[]): Promise<string[]> {
    return this.sql.transaction(async (sql) => {
      const rows = await sql.query<{ id: string }>(NOTICE, [seconds, turnIds]);
      for (const { id } of rows) await this.notifier.sendChange(sql, id);
      return rows.map(({ id }) => id);
    });
  }
}

/** The tasks, by the names that metrics use, with the names that the log uses. */
const TASKS = {
  log_partitions: 'Log partitions',
  idempotency_keys: 'Idempotency keys',
  usage: 'Usage of models',
  kept_changes: 'Changes of past turns',
  stale_turns: 'Stale turns',
  deleted_logs: 'Logs of deleted sessions',
  left_sandboxes: 'Sandboxes of ended sessions',
  stored_bytes: 'Stored text of users',
  lost_hosts: 'Lost hosts',
} as const;
type Task = keyof typeof TASKS;

/** Runs periodic tasks. Every process runs them; a task may run in several processes at the same time. */
@Injectable()
export class MaintenanceService implements OnModuleInit, BeforeApplicationShutdown {
  private readonly logger = new Logger('Maintenance');
  private readonly underWay = new Set<Task>();
  private measured = false;
  private closed = false;
  private readonly countDropped: (partitions: number) => void;
  private readonly countFailure: (task: Task) => void;

  constructor(
    private readonly partitions: LogPartitions,
    private readonly log: EventLogRepository,
    private readonly failures: TurnFailures,
    private readonly staleTurns: StaleTurns,
    private readonly idempotency: IdempotencyRepository,
    private readonly storedBytes: StoredBytes,
    private readonly lostHosts: LostHosts,
    private readonly usage: UsageRepository,
    private readonly changes: TurnChanges,
    private readonly config: AppConfig,
    metrics: Metrics,
  ) {
    this.countDropped = metrics.counter(
      'log_partitions_dropped',
      'Days of the log that this process has purged',
    );
    this.countFailure = metrics.counters(
      'maintenance_failures',
      'Tasks of maintenance that failed in this process',
      'task',
      Object.keys(TASKS) as Task[],
    );
  }

  /** Without today's partition, no output can be stored. */
  async onModuleInit(): Promise<void> {
    await this.partitions.ensure();
  }

  @Cron('0 17 * * * *')
  async keepPartitions(): Promise<void> {
    await this.attempt('log_partitions', async () => {
      await this.partitions.ensure();
      const dropped = await this.partitions.dropExpired();
      this.countDropped(dropped.length);
      if (dropped.length > 0) this.logger.log(`Purged the log: ${dropped.join(', ')}`);
    });
  }

  @Cron('0 47 * * * *')
  async purgeIdempotencyKeys(): Promise<void> {
    await this.attempt('idempotency_keys', () => this.idempotency.purge());
  }

  @Cron('0 37 * * * *')
  async purgeUsage(): Promise<void> {
    await this.attempt('usage', () => this.usage.purge(this.config.logRetentionDays));
  }

  @Cron('0 27 * * * *')
  async purgeChanges(): Promise<void> {
    await this.attempt('kept_changes', () => this.changes.purge());
  }

  @Interval(500)
  async publishStale(): Promise<void> {
    await this.attempt('stale_turns', () => this.staleTurns.publish());
  }

  /** Deletes in small pieces, one at a time, so that other statements run in between. */
  @Interval(1_000)
  async removeDeletedLogs(): Promise<void> {
    await this.attempt('deleted_logs', async () => {
      while (!this.closed && (await this.log.deletePiece()));
    });
  }

  /** Measures what was stored before sizes were recorded. Runs once, after an upgrade. */
  @Interval(1_000)
  async measureStored(): Promise<void> {
    if (this.measured || this.closed) return;
    await this.attempt('stored_bytes', async () => {
      this.measured = !(await this.storedBytes.measurePiece());
    });
  }

  @Interval(LostHosts.EVERY_MS)
  async endTurnsOfLostHosts(): Promise<void> {
    await this.attempt('lost_hosts', () => this.lostHosts.check());
  }

  /** Marks the sandboxes of turns that could not be ended in the usual way. */
  @Interval(60_000)
  async markLeftSandboxes(): Promise<void> {
    await this.attempt('left_sandboxes', () => this.failures.markSandboxes());
  }

  beforeApplicationShutdown(): void {
    this.closed = true;
  }

  /** Does nothing if the task is still running. */
  private async attempt(task: Task, work: () => Promise<void>): Promise<void> {
    if (this.underWay.has(task)) return;
    this.underWay.add(task);
    try {
      await work();
    } catch (error) {
      this.countFailure(task);
      if (!isDatabaseUnavailable(error)) this.logger.warn(`${TASKS[task]}: ${String(error)}`);
    } finally {
      this.underWay.delete(task);
    }
  }
}
