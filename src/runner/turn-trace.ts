import type { Clock } from '../common/clock.js';
import type { StageName } from '../event-log/log-row.js';
import type { ClaimedTurn } from '../sessions/turn-lease.repository.js';
import { turnTraceparent } from '../sessions/turn-span.js';
import type { Span, Tracing } from '../tracing/tracing.js';
import type { StageResult } from './provisioner.js';

/** A turn's part of its trace, as its runner sees it: each span is a part of the turn's own. */
export class TurnTrace {
  /** W3C trace context of the turn's span; `undefined` where the turn is in no trace. */
  readonly traceparent: string | undefined;

  constructor(
    private readonly tracing: Tracing,
    turn: ClaimedTurn,
    private readonly clock: Clock,
  ) {
    this.traceparent = turnTraceparent(turn);
    const first = turn.fencing === 1;
    this.start(first ? 'queue' : 'takeover', first ? turn.age_ms : 0)?.end({
      attributes: { fencing: turn.fencing },
    });
  }

  /** A stage that has just ended. */
  stage(stage: StageName, result: StageResult, durationMs: number): void {
    this.start(stage, durationMs)?.end({
      error: result === 'failed' ? 'stage_failed' : undefined,
    });
  }

  /** The runtime, from its start, whoever started it, to its exit. @param startedAt milliseconds since 1970. */
  runtime(startedAt: number): Span | undefined {
    return this.start('runtime', this.clock.now() - startedAt);
  }

  private start(name: string, beganMsAgo: number): Span | undefined {
    if (this.traceparent === undefined) return undefined;
    const startedAt = this.clock.now() - beganMsAgo;
    return this.tracing.start({ name, parent: this.traceparent, startedAt });
  }
}
