import { conflict, type Refusal } from '../common/errors.js';

export const SESSION_STATUSES = [
  'pending',
  'running',
  'completed',
  'failed',
  'terminated',
] as const;
export type SessionStatus = (typeof SESSION_STATUSES)[number];

/** What can be done to a session from outside. */
export type SessionAction = 'prompt' | 'terminate' | 'delete';

/** The state table: an action is allowed where it has no sentence, else the sentence is the 409's. */
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

/** Why the action is refused in this state; `undefined` when it is not. */
export function refusalOf(action: SessionAction, status: SessionStatus): Refusal | undefined {
  const sentence = REFUSALS[action][status];
  return sentence === undefined ? undefined : conflict(sentence);
}

export const SANDBOX_GONE = 'Session backend is no longer available; start a new session.';
