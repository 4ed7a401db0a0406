import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import { Metrics } from '../metrics/metrics.js';

const DEPTH = {
  name: 'turns-queue-depth',
  timeoutMs: 2_000,
  text: `SELECT count(*) AS depth FROM turns WHERE status = 'pending'`,
};

/** Figures of the queue as a whole; every process tells the same ones. */
@Injectable()
export class QueueMetrics implements OnModuleInit {
  constructor(
    private readonly sql: Sql,
    private readonly metrics: Metrics,
  ) {}

  onModuleInit(): void {
    this.metrics.gauge(
      'queue_depth',
      'Turns that wait for a worker, in all processes',
      async () => {
        const [row] = await this.sql.query<{ depth: number }>(DEPTH);
        return row?.depth ?? Number.NaN;
      },
    );
  }
}
