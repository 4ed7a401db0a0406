import { Injectable, Logger, type OnModuleInit } from '@nestjs/common';
import { Cron, Interval } from '@nestjs/schedule';
import { LogPartitions } from '../event-log/log-partitions.js';
import { IdempotencyRepository } from '../sessions/idempotency.repository.js';
import { StaleTurns } from './stale-turns.repository.js';

/** What has to happen by the clock. Every process does it; each task is safe beside itself elsewhere. */
@Injectable()
export class MaintenanceService implements OnModuleInit {
  private readonly logger = new Logger('Maintenance');
  private looking = false;

  constructor(
    private readonly partitions: LogPartitions,
    private readonly staleTurns: StaleTurns,
    private readonly idempotency: IdempotencyRepository,
  ) {}

  /** Without today's partition nothing can be logged. */
  async onModuleInit(): Promise<void> {
    await this.partitions.ensure();
  }

  @Cron('0 17 * * * *', { waitForCompletion: true })
  async keepPartitions(): Promise<void> {
    await this.attempt('Log partitions', async () => {
      await this.partitions.ensure();
      const dropped = await this.partitions.dropExpired();
      if (dropped.length > 0) this.logger.log(`Purged the log: ${dropped.join(', ')}`);
    });
  }

  @Cron('0 47 * * * *', { waitForCompletion: true })
  async purgeIdempotencyKeys(): Promise<void> {
    await this.attempt('Idempotency keys', () => this.idempotency.purge());
  }

  @Interval(500)
  async publishStale(): Promise<void> {
    if (this.looking) return;
    this.looking = true;
    await this.attempt('Stale turns', () => this.staleTurns.publish());
    this.looking = false;
  }

  private async attempt(task: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.logger.warn(`${task}: ${String(error)}`);
    }
  }
}
