import { Module } from '@nestjs/common';
import { SessionsModule } from '../sessions/sessions.module.js';
import { LostHosts } from './lost-hosts.service.js';
import { MaintenanceService } from './maintenance.service.js';
import { StaleTurns } from './stale-turns.repository.js';

@Module({ imports: [SessionsModule], providers: [LostHosts, MaintenanceService, StaleTurns] })
export class MaintenanceModule {}
