import { Module } from '@nestjs/common';
import { AgentsModule } from '../agents/agents.module.js';
import { EnvironmentsModule } from '../environments/environments.module.js';
import { KeptChangesModule } from '../files/changes/kept-changes.module.js';
import { RemoteFilesModule } from '../files/remote/remote-files.module.js';
import { SandboxFilesListener } from '../files/remote/sandbox-files-listener.service.js';
import { SessionsModule } from '../sessions/sessions.module.js';
import { OutputWriter } from './output-writer.js';
import { SandboxLifecycleModule } from '../sandboxes/lifecycle/sandbox-lifecycle.module.js';
import { LostHostsRepository } from './lost-hosts.repository.js';
import { QueueMetrics } from './queue-metrics.service.js';
import { TurnFailures } from './turn-failure.repository.js';
import { TurnLeaseRepository } from './turn-queue.repository.js';
import { TurnOutputRepository } from './turn-output.repository.js';
import { TurnMetrics } from './turn-telemetry.js';
import { GrantIssuer } from './turn-grants.js';
import { SessionPlans } from './session-plans.repository.js';
import { TurnPlanner } from './turn-plan.js';
import { TurnRunnerParts } from './turn-work.js';
import { SavedEnvironmentBuilder } from './saved-environment-builder.service.js';
import { EnvironmentSetups } from './warm-recipe.js';
import { UsageCollectionModule, UsageModule } from '../usage/usage.module.js';
import { BudgetWatch } from './budget-watch.js';
import { Worker } from './worker.service.js';

const QUEUE = [
  LostHostsRepository,
  QueueMetrics,
  SessionPlans,
  TurnFailures,
  TurnLeaseRepository,
  TurnOutputRepository,
];

/** The queue of turns, for all roles. */
@Module({
  imports: [SessionsModule],
  providers: QUEUE,
  exports: QUEUE,
})
export class TurnsModule {}

/** The role `worker`: claims turns and runs them. */
@Module({
  imports: [
    TurnsModule,
    KeptChangesModule,
    RemoteFilesModule,
    SessionsModule,
    AgentsModule,
    EnvironmentsModule,
    UsageModule,
    UsageCollectionModule,
    SandboxLifecycleModule.with(EnvironmentSetups, [EnvironmentsModule]),
  ],
  providers: [
    BudgetWatch,
    GrantIssuer,
    OutputWriter,
    SandboxFilesListener,
    SavedEnvironmentBuilder,
    TurnMetrics,
    TurnPlanner,
    TurnRunnerParts,
    Worker,
  ],
})
export class WorkerModule {}
