import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { AgentsModule } from '../agents/agents.module.js';
import { EnvironmentsModule } from '../environments/environments.module.js';
import { EndedTurns } from './ended-turns.js';
import { Session } from './entities/session.entity.js';
import { Turn } from './entities/turn.entity.js';
import { IdempotencyRepository } from './idempotency.repository.js';
import { LostHostsRepository } from './lost-hosts.repository.js';
import { QueueMetrics } from './queue-metrics.service.js';
import { SessionPlans } from './session-plans.repository.js';
import { SessionPresenter } from './session.presenter.js';
import { SessionsController } from './sessions.controller.js';
import { SessionsRepository } from './sessions.repository.js';
import { SessionsService } from './sessions.service.js';
import { StreamStates } from './stream-states.repository.js';
import { TurnLeaseRepository } from './turn-lease.repository.js';
import { TurnOutputRepository } from './turn-output.repository.js';
import { WorkersRepository } from './workers.repository.js';

@Module({
  imports: [TypeOrmModule.forFeature([Session, Turn]), AgentsModule, EnvironmentsModule],
  controllers: [SessionsController],
  providers: [
    EndedTurns,
    IdempotencyRepository,
    LostHostsRepository,
    QueueMetrics,
    SessionPlans,
    SessionPresenter,
    SessionsRepository,
    SessionsService,
    StreamStates,
    TurnLeaseRepository,
    TurnOutputRepository,
    WorkersRepository,
  ],
  exports: [
    EndedTurns,
    IdempotencyRepository,
    LostHostsRepository,
    SessionPlans,
    SessionsService,
    StreamStates,
    TurnLeaseRepository,
    TurnOutputRepository,
    WorkersRepository,
  ],
})
export class SessionsModule {}
