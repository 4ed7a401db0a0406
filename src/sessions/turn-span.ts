import { formatTraceparent, parseTraceparent } from '../tracing/traceparent.js';

/**
 * The id of a turn's span, from the turn's own: its parts, in whichever process, refer to it before whoever ends the turn
 * makes it.
 */
export function spanIdOf(turnId: string): string {
  return turnId.replaceAll('-', '').slice(0, 16);
}

/** W3C trace context of a turn's span; `undefined` for a turn whose request had none. */
export function turnTraceparent(turn: {
  id: string;
  traceparent: string | null;
}): string | undefined {
  const asked = parseTraceparent(turn.traceparent);
  return asked && formatTraceparent({ ...asked, spanId: spanIdOf(turn.id) });
}
