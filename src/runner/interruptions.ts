/** Why a turn runner stops before its turn has ended; reasons of its abort signal. */

/** The turn is no longer this worker's: terminated, or taken over. Nothing may be written or killed any more. */
export class LeaseLost extends Error {
  constructor() {
    super('The lease of the turn is lost');
  }
}

/** This process is stopping; the turn goes on elsewhere, its detached runtime lives on. */
export class Draining extends Error {
  constructor() {
    super('The worker is shutting down');
  }
}

/** The turn has used up its wall clock. The message is for clients. */
export class TurnTimeout extends Error {
  constructor(seconds: number) {
    super(`Turn timed out after ${seconds} seconds`);
  }
}
