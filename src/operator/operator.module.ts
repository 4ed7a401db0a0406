import { Module } from '@nestjs/common';
import { AuditModule } from '../audit/audit.module.js';
import { AuthModule } from '../auth/auth.module.js';
import { Sql } from '../database/sql.js';
import { Notifier } from '../event-log/log-notifications.js';
import { SessionOperations } from '../sessions/session-operations.js';
import { SessionsModule } from '../sessions/sessions.module.js';
import { AccountsController } from './accounts.controller.js';
import { OperatorService } from './operator.service.js';
import { SystemController } from './system.controller.js';

/** The routes that are only there for operators. */
@Module({
  imports: [AuditModule, AuthModule, SessionsModule],
  controllers: [SystemController, AccountsController],
  providers: [
    OperatorService,
    {
      provide: SessionOperations,
      inject: [Sql, Notifier],
      useFactory: (sql: Sql, notifier: Notifier) => new SessionOperations(sql, notifier),
    },
  ],
})
export class OperatorModule {}
