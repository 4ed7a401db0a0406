import type { Clock } from '../common/clock.js';
import type { StageName } from '../event-log/event-log.repository.js';
import type { ClaimedTurn } from './turn-queue.repository.js';
import { turnTraceparent } from '../sessions/ended-turns.js';
import type { Span, Tracing } from '../tracing/tracing.js';
import type { StageResult } from './provisioner.js';
import { Injectable } from '@nestjs/common';
import { Metrics, WORK_SECONDS } from '../metrics/metrics.js';

/** The spans of a turn's runner, which are children of the turn's span. */
export class TurnTrace {
  /** W3C trace context of the turn's span; `undefined` if the turn has no trace. */
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

  /** Records the span of a stage that has just ended. */
  stage(stage: StageName, result: StageResult, durationMs: number): void {
    this.start(stage, durationMs)?.end({
      error: result === 'failed' ? 'stage_failed' : undefined,
    });
  }

  /**
   * The span of the runtime from its start, which may have been in another worker, to its exit. @param startedAt
   * milliseconds since 1970.
   */
  runtime(startedAt: number): Span | undefined {
    return this.start('runtime', this.clock.now() - startedAt);
  }

  private start(name: string, beganMsAgo: number): Span | undefined {
    if (this.traceparent === undefined) return undefined;
    const startedAt = this.clock.now() - beganMsAgo;
    return this.tracing.start({ name, parent: this.traceparent, startedAt });
  }
}

/** Measures how long the steps of this process's turns take. Times are milliseconds. */
@Injectable()
export class TurnMetrics {
  private readonly observeQueue: (seconds: number, labels: { provider: string }) => void;
  private readonly observeFirst: (seconds: number, labels: { provider: string }) => void;
  private readonly observeStage: (
    seconds: number,
    labels: { stage: StageName; result: StageResult },
  ) => void;
  private readonly countTakeover: () => void;

  constructor(metrics: Metrics) {
    this.observeQueue = metrics.histogram(
      'turn_queue_seconds',
      'Turns, from their acceptance to their first claim',
      WORK_SECONDS,
      ['provider'],
    );
    this.observeFirst = metrics.histogram(
      'turn_first_output_seconds',
      'Turns, from their acceptance to the first output in the log',
      WORK_SECONDS,
      ['provider'],
    );
    this.observeStage = metrics.histogram(
      'stage_duration_seconds',
      'Stages of provisioning, and the launch of the runtime',
      WORK_SECONDS,
      ['stage', 'result'],
    );
    this.countTakeover = metrics.counter(
      'lease_takeovers',
      'Turns that this process went on with after another one, or an earlier run of itself',
    );
  }

  claimed({ fencing, age_ms: ageMs, provider }: ClaimedTurn): void {
    if (fencing > 1) this.countTakeover();
    else this.observeQueue(ageMs / 1000, { provider });
  }

  /** @param ageMs since the turn was accepted */
  firstOutput({ provider }: ClaimedTurn, ageMs: number): void {
    this.observeFirst(ageMs / 1000, { provider });
  }

  stage(stage: StageName, result: StageResult, durationMs: number): void {
    this.observeStage(durationMs / 1000, { stage, result });
  }
}
