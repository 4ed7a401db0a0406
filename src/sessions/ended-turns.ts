import { formatTraceparent, parseTraceparent, Tracing } from '../tracing/tracing.js';
import { Injectable } from '@nestjs/common';
import { Clock } from '../common/clock.js';
import { LONG_SECONDS, Metrics } from '../metrics/metrics.js';

/**
 * Derives the id of a turn's span from the turn's id, because spans in several processes refer to it before the span
 * itself is made at the turn's end.
 */
export function spanIdOf(turnId: string): string {
  return turnId.replaceAll('-', '').slice(0, 16);
}

/** W3C trace context of a turn's span; `undefined` for a turn whose request had none. */
export function turnTraceparent(turn: {
  id: string;
  traceparent: string | null;
}): string | undefined {
  const request = parseTraceparent(turn.traceparent);
  return request && formatTraceparent({ ...request, spanId: spanIdOf(turn.id) });
}

/** A turn that has ended, with the fields that metrics and traces need. */
export interface EndedTurn {
  id: string;
  sessionId: string;
  turnNumber: number;
  provider: string;
  /** W3C trace context of the request that created the turn. */
  traceparent: string | null;
  /** Time since the turn was accepted. Milliseconds. */
  ageMs: number;
}

/** Records every turn that this process has ended: in the metrics, and as a span of its trace. */
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
