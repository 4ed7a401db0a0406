import { Inject, Injectable } from '@nestjs/common';
import { Clock } from '../common/clock.js';
import { AppConfig } from '../config/app-config.js';
import { EnvironmentBuilds } from '../environments/environment-builds.js';
import { ChangesKeeper } from '../files/changes/changes-keeper.service.js';
import type { SandboxDriver } from '../sandboxes/driver/sandbox-driver.js';
import { SANDBOX_DRIVER } from '../sandboxes/sandbox-host.js';
import { EndedTurns } from '../sessions/ended-turns.js';
import { TurnFailures } from './turn-failure.repository.js';
import type { ClaimedTurn } from './turn-queue.repository.js';
import { TurnOutputRepository } from './turn-output.repository.js';
import { Tracing } from '../tracing/tracing.js';
import type { TurnSandbox } from './turn-leases.js';
import { OutputWriter } from './output-writer.js';
import type { TurnJournal } from './turn-journal.js';
import { TurnMetrics, type TurnTrace } from './turn-telemetry.js';
import { GrantIssuer } from './turn-grants.js';
import { TurnPlanner } from './turn-plan.js';
import { UsageCollector } from '../usage/usage-collector.service.js';
import { UsageComparison } from '../usage/usage-comparison.js';
import { WarmPool } from '../sandboxes/lifecycle/warm-pool.service.js';

/** The longest delay of a timer. */
export const TIMER_LIMIT_MS = 2 ** 31 - 1;

/** What the runners of a worker share. */
@Injectable()
export class TurnRunnerParts {
  readonly outputLimitBytes: number;
  /** After this many claims without progress, a turn is failed. */
  readonly claimLimit: number;

  constructor(
    readonly planner: TurnPlanner,
    readonly grants: GrantIssuer,
    @Inject(SANDBOX_DRIVER) readonly driver: SandboxDriver,
    readonly writer: OutputWriter,
    readonly output: TurnOutputRepository,
    readonly failures: TurnFailures,
    readonly clock: Clock,
    readonly metrics: TurnMetrics,
    readonly endedTurns: EndedTurns,
    readonly tracing: Tracing,
    readonly warm: WarmPool,
    readonly usage: UsageCollector,
    readonly changes: ChangesKeeper,
    readonly builds: EnvironmentBuilds,
    readonly usageComparison: UsageComparison,
    config: AppConfig,
  ) {
    this.outputLimitBytes = config.outputLimitBytes;
    this.claimLimit = config.turnClaimLimit;
  }
}

/** What the steps of a turn's runner share. */
export interface TurnWork {
  readonly parts: TurnRunnerParts;
  readonly turn: ClaimedTurn;
  /** Changes the sandbox only while the lease is certain. */
  readonly sandbox: TurnSandbox;
  readonly journal: TurnJournal;
  readonly trace: TurnTrace;
  /** Fires when this worker has to leave the turn as it is. */
  readonly signal: AbortSignal;
  /**
   * When the turn times out. Moves while the turn waits for resources that sandboxes share. Milliseconds since 1970.
   */
  readonly deadline: number;
  /** By the monotonic clock, milliseconds. */
  readonly claimedAt: number;
}

/** How long ago the turn was accepted. Milliseconds; does not compare the clocks of two machines. */
export function ageOf({ parts, turn, claimedAt }: TurnWork): number {
  return turn.age_ms + parts.clock.monotonic() - claimedAt;
}
