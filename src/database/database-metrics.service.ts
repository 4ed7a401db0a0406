import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Metrics } from '../metrics/metrics.js';
import { Outage } from './outage.js';
import { Sql } from './sql.js';

/** How this process gets on with its database. */
@Injectable()
export class DatabaseMetrics implements OnModuleInit {
  constructor(
    private readonly sql: Sql,
    private readonly outage: Outage,
    private readonly metrics: Metrics,
  ) {}

  onModuleInit(): void {
    this.metrics.gauge(
      'database_available',
      '1 while the database answers this process, else 0',
      () => (this.outage.isOver ? 1 : 0),
    );
    this.metrics.gauge(
      'database_connections',
      'Connections in the pool of this process',
      () => this.sql.connections.total,
    );
    this.metrics.gauge(
      'database_connections_idle',
      'Connections of the pool that nobody uses at the moment',
      () => this.sql.connections.idle,
    );
    this.metrics.gauge(
      'database_requests_waiting',
      'Statements and transactions that wait for a connection of the pool',
      () => this.sql.connections.waiting,
    );
  }
}
