import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { AgentsModule } from '../agents/agents.module.js';
import { EnvironmentsModule } from '../environments/environments.module.js';
import { IdempotencyModule } from '../idempotency/idempotency.module.js';
import { UsageModule } from '../usage/usage.module.js';
import { EndedTurns } from './ended-turns.js';
import { Session, Turn } from './entities/session.entity.js';
import { QueuePositions } from './queue-positions.repository.js';
import { SessionPresenter } from './session.presenter.js';
import { SessionsController } from './sessions.controller.js';
import { SessionsRepository } from './sessions.repository.js';
import { SessionsService } from './sessions.service.js';
import { StreamStates } from './stream-states.repository.js';
import { TurnRequirements } from './turn-requirements.js';
import { WorkersRepository } from './workers.repository.js';

@Module({
  imports: [
    TypeOrmModule.forFeature([Session, Turn]),
    AgentsModule,
    EnvironmentsModule,
    IdempotencyModule,
    UsageModule,
  ],
  controllers: [SessionsController],
  providers: [
    EndedTurns,
    QueuePositions,
    SessionPresenter,
    SessionsRepository,
    SessionsService,
    StreamStates,
    TurnRequirements,
    WorkersRepository,
  ],
  exports: [EndedTurns, QueuePositions, SessionsService, StreamStates, WorkersRepository],
})
export class SessionsModule {}
