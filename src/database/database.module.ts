import { Injectable, type OnModuleInit, type DynamicModule, Module } from '@nestjs/common';
import { Metrics } from '../metrics/metrics.js';
import { Outage, Sql } from './sql.js';
import { TypeOrmModule } from '@nestjs/typeorm';
import { AppConfig } from '../config/app-config.js';
import { dataSourceOptions, DatabaseUrl } from './data-source.js';
import { Notifications } from './notifications.js';

/** Metrics of the database as seen by this process. */
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
      '1 if the database answers this process, 0 if not',
      () => (this.outage.isOver ? 1 : 0),
    );
    this.metrics.gauge(
      'database_connections',
      'Connections in the pool of this process',
      () => this.sql.connections.total,
    );
    this.metrics.gauge(
      'database_connections_idle',
      'Idle connections of the pool',
      () => this.sql.connections.idle,
    );
    this.metrics.gauge(
      'database_requests_waiting',
      'Statements and transactions waiting for a connection of the pool',
      () => this.sql.connections.waiting,
    );
  }
}

/** Connections to the database: TypeORM's pool, hand-written SQL on the same pool, and the LISTEN connection. */
@Module({})
export class DatabaseModule {
  static at(url: string): DynamicModule {
    return {
      module: DatabaseModule,
      global: true,
      imports: [
        TypeOrmModule.forRootAsync({
          inject: [AppConfig],
          useFactory: (config: AppConfig) => ({
            ...dataSourceOptions({ url, poolSize: config.databasePoolSize }),
            autoLoadEntities: true,
            retryAttempts: 0,
          }),
        }),
      ],
      providers: [
        { provide: DatabaseUrl, useValue: new DatabaseUrl(url) },
        Outage,
        Sql,
        Notifications,
        DatabaseMetrics,
      ],
      exports: [DatabaseUrl, Sql, Notifications],
    };
  }
}
