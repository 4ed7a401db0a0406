import { setTimeout as delay } from 'node:timers/promises';
import { isDatabaseUnavailable } from '../common/database-unavailable.js';

const RETRY_MS = 500;

/**
 * Repeats what needs the database until it answers; a database that is away is no reason to fail a turn.
 * @param givesUpFor whether a reason of the signal ends the trying.
 * @throws what `work` throws for another cause, or the signal's reason.
 */
export async function insist<T>(
  signal: AbortSignal,
  work: () => Promise<T>,
  givesUpFor: (reason: unknown) => boolean = () => true,
): Promise<T> {
  for (;;) {
    if (signal.aborted && givesUpFor(signal.reason)) throw signal.reason;
    try {
      return await work();
    } catch (error) {
      if (!isDatabaseUnavailable(error)) throw error;
      await delay(RETRY_MS, undefined, signal.aborted ? {} : { signal }).catch(() => undefined);
    }
  }
}
