import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import { Metrics } from '../metrics/metrics.js';

const ACTIVE = {
  name: 'turns-active',
  timeoutMs: 2_000,
  text: `
    SELECT t.status AS state, s.provider, count(*) AS turns,
      extract(epoch FROM now() - min(t.created_at))::float8 AS age
    FROM (
      SELECT session_id, status, created_at FROM turns WHERE status = 'pending'
      UNION ALL
      SELECT session_id, status, created_at FROM turns WHERE status = 'running'
    ) t JOIN sessions s ON s.id = t.session_id
    GROUP BY 1, 2`,
};

interface Active {
  state: 'pending' | 'running';
  provider: string;
  turns: number;
  /** How long the oldest of them has waited, in seconds. */
  age: number;
}

/** Metrics of the whole queue. Every process reports the same values. */
@Injectable()
export class QueueMetrics implements OnModuleInit {
  private reading: Promise<Active[]> | undefined;

  constructor(
    private readonly sql: Sql,
    private readonly metrics: Metrics,
  ) {}

  onModuleInit(): void {
    this.metrics.gauges(
      'turns',
      'Turns that wait or run, in all processes',
      ['state', 'provider'],
      async () =>
        (await this.read()).map(({ state, provider, turns }) => ({
          labels: { state, provider },
          value: turns,
        })),
    );
    this.metrics.gauge('queue_depth', 'Turns that wait for a worker, in all processes', async () =>
      (await this.pending()).reduce((sum, { turns }) => sum + turns, 0),
    );
    this.metrics.gauge(
      'queue_age_seconds',
      'How long the oldest waiting turn has waited, in all processes; 0 if none waits',
      async () => Math.max(0, ...(await this.pending()).map(({ age }) => age)),
    );
  }

  private async pending(): Promise<Active[]> {
    return (await this.read()).filter(({ state }) => state === 'pending');
  }

  /** Reads the values of all gauges with one query per scrape. */
  private read(): Promise<Active[]> {
    this.reading ??= this.sql
      .query<Active & Record<string, unknown>>(ACTIVE)
      .finally(() => (this.reading = undefined));
    return this.reading;
  }
}
