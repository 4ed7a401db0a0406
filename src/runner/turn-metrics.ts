import { Injectable } from '@nestjs/common';
import type { StageName } from '../event-log/log-row.js';
import { Metrics, WORK_SECONDS } from '../metrics/metrics.js';
import type { ClaimedTurn } from '../sessions/turn-lease.repository.js';
import type { StageResult } from './provisioner.js';

/** How long the steps of this process's turns take. Times are milliseconds. */
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
