import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { EnvironmentVersionEntity } from './entities/environment-version.entity.js';
import { EnvironmentEntity } from './entities/environment.entity.js';
import { EnvironmentsController } from './environments.controller.js';
import { EnvironmentsRepository } from './environments.repository.js';
import { EnvironmentsService } from './environments.service.js';

@Module({
  imports: [TypeOrmModule.forFeature([EnvironmentEntity, EnvironmentVersionEntity])],
  controllers: [EnvironmentsController],
  providers: [EnvironmentsService, EnvironmentsRepository],
  exports: [EnvironmentsService],
})
export class EnvironmentsModule {}
