import { type DynamicModule, Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { AppConfig } from '../config/app-config.js';
import { dataSourceOptions } from './data-source.js';
import { DatabaseMetrics } from './database-metrics.service.js';
import { DatabaseUrl } from './database-url.js';
import { Notifications } from './notifications.js';
import { Outage } from './outage.js';
import { Sql } from './sql.js';

/** Connections to the one database: TypeORM's pool, hand-written SQL on the same pool, and the LISTEN connection. */
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
