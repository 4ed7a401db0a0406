import { Injectable, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common';
import { Metrics } from '../metrics/metrics.js';
import { Doorbell } from './doorbell.js';

/** How much this process writes into the log. */
@Injectable()
export class LogMetrics implements OnModuleInit, OnApplicationShutdown {
  private rows = 0;
  private endSubscription: () => void = () => undefined;

  constructor(
    private readonly doorbell: Doorbell,
    private readonly metrics: Metrics,
  ) {}

  onModuleInit(): void {
    this.metrics.total(
      'log_rows',
      'Rows that this process has written into the log',
      () => this.rows,
    );
    this.endSubscription = this.doorbell.on('log.committed', ({ rows }) => {
      this.rows += rows.length;
    });
  }

  onApplicationShutdown(): void {
    this.endSubscription();
  }
}
