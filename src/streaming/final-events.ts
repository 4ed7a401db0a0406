import type { StreamState } from '../sessions/stream-states.repository.js';
import type { StaleEvent, TerminalEvent } from './dto/session-event.dto.js';

/**
 * The event that ends a stream when its turn has ended.
 * @param lastId the id of the session's last log row.
 * @returns `undefined` while the turn goes on.
 */
export function terminalEventOf(
  state: StreamState,
  turn: number,
  lastId: number,
): TerminalEvent | undefined {
  if (state.sessionStatus === 'terminated' && state.currentTurn === turn) {
    return { type: 'terminated', id: lastId, message: 'Session terminated' };
  }
  switch (state.status) {
    case 'pending':
    case 'running':
      return undefined;
    case 'terminated':
      return { type: 'terminated', id: lastId, message: 'Session terminated' };
    case 'completed':
    case 'failed':
      return state.exitCode === null
        ? { type: 'error', id: lastId, message: state.error ?? 'The turn failed' }
        : { type: 'exit', id: lastId, code: state.exitCode };
  }
}

/** The event for a running session that has had no output for too long. */
export function staleEvent(lastId: number, seconds: number): StaleEvent {
  return { type: 'stale', id: lastId, message: `No new output for ${seconds} seconds` };
}
