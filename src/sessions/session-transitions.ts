import { conflict, type DomainError } from '../common/errors.js';

export const SESSION_STATUSES = [
  'pending',
  'running',
  'completed',
  'failed',
  'terminated',
] as const;
export type SessionStatus = (typeof SESSION_STATUSES)[number];

/** What clients can do to a session. */
export type SessionAction = 'prompt' | 'terminate' | 'delete';

/** The states that do not allow an action, with the message of the 409. All other states allow it. */
const REFUSALS: Record<SessionAction, Partial<Record<SessionStatus, string>>> = {
  prompt: {
    pending: 'Session already has a pending turn',
    running: 'Session is already running',
    failed: 'Session has failed and cannot be resumed. Start a new session.',
    terminated: 'Session has been terminated',
  },
  terminate: {
    failed: 'Session has already failed',
    terminated: 'Session is already terminated',
  },
  delete: {
    pending: 'Cannot delete an active session',
    running: 'Cannot delete an active session',
  },
};

/** The states from which an action is allowed; bound into the conditional UPDATE that performs it. */
export function allowedFrom(action: SessionAction): SessionStatus[] {
  return SESSION_STATUSES.filter((status) => REFUSALS[action][status] === undefined);
}

/** Why the state does not allow the action; `undefined` if it does. */
export function refusalOf(action: SessionAction, status: SessionStatus): DomainError | undefined {
  const sentence = REFUSALS[action][status];
  return sentence === undefined ? undefined : conflict(sentence);
}

export const SANDBOX_GONE = 'Session backend is no longer available; start a new session.';
