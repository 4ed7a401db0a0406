import { Injectable } from '@nestjs/common';
import { Clock } from '../common/clock.js';
import { LONG_SECONDS, Metrics } from '../metrics/metrics.js';
import { Tracing } from '../tracing/tracing.js';
import { spanIdOf } from './turn-span.js';

/** A turn that has ended, as figures and traces know it. */
export interface EndedTurn {
  id: string;
  sessionId: string;
  turnNumber: number;
  provider: string;
  /** W3C trace context of the request that asked for it. */
  traceparent: string | null;
  /** Time since it was accepted. Milliseconds. */
  ageMs: number;
}

/** Takes note of every turn that this process has ended: counts it, and ends its span. */
@Injectable()
export class EndedTurns {
  private readonly observe: (seconds: number, labels: { provider: string; state: string }) => void;

  constructor(
    metrics: Metrics,
    private readonly tracing: Tracing,
    private readonly clock: Clock,
  ) {
    this.observe = metrics.histogram(
      'turn_duration_seconds',
      'Turns that this process has ended, from their acceptance to their end',
      LONG_SECONDS,
      ['provider', 'state'],
    );
  }

  note(turn: EndedTurn, state: 'completed' | 'failed' | 'terminated'): void {
    const { id, sessionId, turnNumber, provider, traceparent, ageMs } = turn;
    this.observe(ageMs / 1000, { provider, state });
    if (traceparent === null) return;
    this.tracing
      .start({
        name: 'turn',
        kind: 'consumer',
        parent: traceparent,
        id: spanIdOf(id),
        startedAt: this.clock.now() - ageMs,
        attributes: {
          'session.id': sessionId,
          'turn.id': id,
          'turn.number': turnNumber,
          'turn.state': state,
          provider,
        },
      })
      ?.end({ error: state === 'failed' ? 'turn_failed' : undefined });
  }
}
