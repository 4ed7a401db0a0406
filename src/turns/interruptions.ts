import { sqlStateOf } from '../common/database-errors.js';

/** Why the runner of a turn stops before the turn has ended. Each class is the reason of an AbortSignal. */

/** The turn was terminated or taken over by another worker. This worker may no longer write or kill anything. */
export class LeaseLost extends Error {
  constructor() {
    super('The lease of the turn is lost');
  }
}

/** This process is stopping. The detached runtime keeps running, and another worker continues the turn. */
export class Draining extends Error {
  constructor() {
    super('The worker is shutting down');
  }
}

/** The turn has used up its wall-clock time. The message is for clients. */
export class TurnTimeout extends Error {
  constructor(seconds: number) {
    super(`Turn timed out after ${seconds} seconds`);
  }
}

/** A budget of the session or its user is used up. The message is for clients. */
export class OverBudget extends Error {}

/**
 * The database permanently rejects a statement that the turn needs, so the turn ends with an error. The message is for
 * clients.
 */
export class TurnRefused extends Error {
  /** @param cause the error of the database. Clients see only its code. */
  constructor(what: string, cause: unknown) {
    const code = sqlStateOf(cause);
    super(code === undefined ? what : `${what} (database error ${code})`, { cause });
  }
}
