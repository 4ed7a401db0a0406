import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { IdempotencyModule } from '../idempotency/idempotency.module.js';
import { EnvironmentVersionEntity, EnvironmentEntity } from './entities/environment.entity.js';
import { EnvironmentBuilds } from './environment-builds.js';
import { EnvironmentsController } from './environments.controller.js';
import { EnvironmentsRepository } from './environments.repository.js';
import { EnvironmentsService } from './environments.service.js';
import { SavedEnvironments } from './saved-environments.js';

@Module({
  imports: [
    TypeOrmModule.forFeature([EnvironmentEntity, EnvironmentVersionEntity]),
    IdempotencyModule,
  ],
  controllers: [EnvironmentsController],
  providers: [EnvironmentBuilds, EnvironmentsService, EnvironmentsRepository, SavedEnvironments],
  exports: [EnvironmentBuilds, EnvironmentsService, SavedEnvironments],
})
export class EnvironmentsModule {}
