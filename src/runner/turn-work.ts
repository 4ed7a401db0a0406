import type { Clock } from '../common/clock.js';
import type { SandboxDriver } from '../sandboxes/sandbox-driver.js';
import type { EndedTurns } from '../sessions/ended-turns.js';
import type { ClaimedTurn } from '../sessions/turn-lease.repository.js';
import type { TurnOutputRepository } from '../sessions/turn-output.repository.js';
import type { Tracing } from '../tracing/tracing.js';
import type { TurnSandbox } from './leased-driver.js';
import type { OutputWriter } from './output-writer.js';
import type { TurnJournal } from './turn-journal.js';
import type { TurnMetrics } from './turn-metrics.js';
import type { TurnPlanner } from './turn-plan.js';
import type { TurnTrace } from './turn-trace.js';
import type { WarmPool } from './warm/warm-pool.service.js';

/** The longest that a timer can wait. */
export const TIMER_LIMIT_MS = 2 ** 31 - 1;

/** What the runners of a worker share. */
export interface TurnRunnerParts {
  planner: TurnPlanner;
  driver: SandboxDriver;
  writer: OutputWriter;
  output: TurnOutputRepository;
  clock: Clock;
  metrics: TurnMetrics;
  endedTurns: EndedTurns;
  tracing: Tracing;
  warm: WarmPool;
  outputLimitBytes: number;
}

/** One turn in the hands of its runner, as its steps need it. */
export interface TurnWork {
  readonly parts: TurnRunnerParts;
  readonly turn: ClaimedTurn;
  /** Acts only while the lease is certain. */
  readonly sandbox: TurnSandbox;
  readonly journal: TurnJournal;
  readonly trace: TurnTrace;
  /** Fires when this worker has to leave the turn as it is. */
  readonly signal: AbortSignal;
  /** When the turn's time is over. Milliseconds since 1970. */
  readonly deadline: number;
  /** By the monotonic clock, milliseconds. */
  readonly claimedAt: number;
}

/** How long ago the turn was accepted. Milliseconds; does not compare the clocks of two machines. */
export function ageOf({ parts, turn, claimedAt }: TurnWork): number {
  return turn.age_ms + parts.clock.monotonic() - claimedAt;
}
