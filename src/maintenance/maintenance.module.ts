import { Module } from '@nestjs/common';
import { IdempotencyModule } from '../idempotency/idempotency.module.js';
import { KeptChangesModule } from '../files/changes/kept-changes.module.js';
import { SessionsModule } from '../sessions/sessions.module.js';
import { UsageModule } from '../usage/usage.module.js';
import { TurnsModule } from '../turns/turns.module.js';
import { LostHosts } from './lost-hosts.service.js';
import { MaintenanceService, StaleTurns } from './maintenance.service.js';
import { StoredBytes } from './stored-bytes.repository.js';

@Module({
  imports: [KeptChangesModule, SessionsModule, TurnsModule, IdempotencyModule, UsageModule],
  providers: [LostHosts, MaintenanceService, StaleTurns, StoredBytes],
})
export class MaintenanceModule {}
