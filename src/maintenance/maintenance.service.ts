import { Injectable, Logger, type OnModuleInit } from '@nestjs/common';
import { Cron, Interval } from '@nestjs/schedule';
import { isDatabaseUnavailable } from '../common/database-unavailable.js';
import { LogPartitions } from '../event-log/log-partitions.js';
import { Metrics } from '../metrics/metrics.js';
import { IdempotencyRepository } from '../sessions/idempotency.repository.js';
import { StaleTurns } from './stale-turns.repository.js';

/** Tasks by their names in figures, with those in the log. */
const TASKS = {
  log_partitions: 'Log partitions',
  idempotency_keys: 'Idempotency keys',
  stale_turns: 'Stale turns',
} as const;
type Task = keyof typeof TASKS;

/** What has to happen by the clock. Every process does it; each task is safe beside itself elsewhere. */
@Injectable()
export class MaintenanceService implements OnModuleInit {
  private readonly logger = new Logger('Maintenance');
  private looking = false;
  private readonly countDropped: (partitions: number) => void;
  private readonly countFailure: (task: Task) => void;

  constructor(
    private readonly partitions: LogPartitions,
    private readonly staleTurns: StaleTurns,
    private readonly idempotency: IdempotencyRepository,
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

  /** Without today's partition nothing can be logged. */
  async onModuleInit(): Promise<void> {
    await this.partitions.ensure();
  }

  @Cron('0 17 * * * *', { waitForCompletion: true })
  async keepPartitions(): Promise<void> {
    await this.attempt('log_partitions', async () => {
      await this.partitions.ensure();
      const dropped = await this.partitions.dropExpired();
      this.countDropped(dropped.length);
      if (dropped.length > 0) this.logger.log(`Purged the log: ${dropped.join(', ')}`);
    });
  }

  @Cron('0 47 * * * *', { waitForCompletion: true })
  async purgeIdempotencyKeys(): Promise<void> {
    await this.attempt('idempotency_keys', () => this.idempotency.purge());
  }

  @Interval(500)
  async publishStale(): Promise<void> {
    if (this.looking) return;
    this.looking = true;
    await this.attempt('stale_turns', () => this.staleTurns.publish());
    this.looking = false;
  }

  private async attempt(task: Task, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.countFailure(task);
      if (!isDatabaseUnavailable(error)) this.logger.warn(`${TASKS[task]}: ${String(error)}`);
    }
  }
}
