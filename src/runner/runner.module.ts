import { Module } from '@nestjs/common';
import { AgentsModule } from '../agents/agents.module.js';
import { EnvironmentsModule } from '../environments/environments.module.js';
import { SessionsModule } from '../sessions/sessions.module.js';
import { OutputWriter } from './output-writer.js';
import { SandboxReaper } from './sandbox-reaper.service.js';
import { SandboxesRepository } from './sandboxes.repository.js';
import { TurnMetrics } from './turn-metrics.js';
import { TurnPlanner } from './turn-plan.js';
import { WarmPool } from './warm/warm-pool.service.js';
import { WarmSandboxesRepository } from './warm/warm-sandboxes.repository.js';
import { Worker } from './worker.service.js';

/** The role `worker`: claims turns and runs them. */
@Module({
  imports: [SessionsModule, AgentsModule, EnvironmentsModule],
  providers: [
    OutputWriter,
    SandboxReaper,
    SandboxesRepository,
    TurnMetrics,
    TurnPlanner,
    WarmPool,
    WarmSandboxesRepository,
    Worker,
  ],
})
export class RunnerModule {}
