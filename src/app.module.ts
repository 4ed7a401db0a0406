import { type DynamicModule, Module } from '@nestjs/common';
import { APP_FILTER, APP_PIPE } from '@nestjs/core';
import { EventEmitterModule } from '@nestjs/event-emitter';
import { ScheduleModule } from '@nestjs/schedule';
import { AgentsModule } from './agents/agents.module.js';
import { AuditModule } from './audit/audit.module.js';
import { AuthModule } from './auth/auth.module.js';
import { Clock, SystemClock } from './common/clock.js';
import { DetailFilter } from './common/http/detail.filter.js';
import { KnownRoutes } from './common/http/routes.js';
import { BodyValidationPipe } from './common/http/validation.pipe.js';
import type { AppConfig } from './config/app-config.js';
import { ConfigModule } from './config/config.module.js';
import { ConsoleModule } from './console/console.module.js';
import { DatabaseModule } from './database/database.module.js';
import { EnvironmentsModule } from './environments/environments.module.js';
import { EventLogModule } from './event-log/event-log.module.js';
import { FilesModule } from './files/files.module.js';
import { HealthModule } from './health/health.module.js';
import { MaintenanceModule } from './maintenance/maintenance.module.js';
import { OperatorModule } from './operator/operator.module.js';
import { OpenApiModule } from './openapi/openapi.module.js';
import { MetricsModule } from './metrics/metrics.module.js';
import { TurnsModule, WorkerModule } from './turns/turns.module.js';
import { RuntimesModule } from './runtimes/runtimes.module.js';
import { SandboxesModule } from './sandboxes/sandboxes.module.js';
import { SecretsModule } from './secrets/secrets.module.js';
import { SessionsModule } from './sessions/sessions.module.js';
import { StreamingModule } from './streaming/streaming.module.js';
import type { Tracing } from './tracing/tracing.js';
import { TracingModule } from './tracing/tracing.module.js';

/** The composition root: which modules make up the process, by its role. */
@Module({})
export class AppModule {
  static of(options: {
    config: AppConfig;
    databaseUrl: string;
    routes: KnownRoutes;
    tracing: Tracing;
  }): DynamicModule {
    return {
      module: AppModule,
      global: true,
      imports: [
        ConfigModule.of(options.config),
        DatabaseModule.at(options.databaseUrl),
        EventEmitterModule.forRoot(),
        ScheduleModule.forRoot(),
        MetricsModule,
        TracingModule.with(options.tracing),
        SecretsModule,
        RuntimesModule,
        SandboxesModule,
        EventLogModule,
        AuditModule,
        AuthModule,
        EnvironmentsModule,
        AgentsModule,
        SessionsModule,
        TurnsModule,
        ...(options.config.role === 'worker' ? [] : [StreamingModule, FilesModule, OperatorModule]),
        ...(options.config.role === 'api' ? [] : [WorkerModule]),
        MaintenanceModule,
        ...(options.config.console && options.config.role !== 'worker' ? [ConsoleModule] : []),
        HealthModule,
        OpenApiModule,
      ],
      providers: [
        { provide: Clock, useClass: SystemClock },
        { provide: KnownRoutes, useValue: options.routes },
        { provide: APP_FILTER, useClass: DetailFilter },
        { provide: APP_PIPE, useClass: BodyValidationPipe },
      ],
      exports: [Clock],
    };
  }
}
