import { Module } from '@nestjs/common';
import { MaintenanceService } from './maintenance.service.js';
import { StaleTurns } from './stale-turns.repository.js';

@Module({ providers: [MaintenanceService, StaleTurns] })
export class MaintenanceModule {}
