import { setTimeout as delay } from 'node:timers/promises';
import { Logger } from '@nestjs/common';
import { isDatabaseUnavailable, isRepairable } from './database-errors.js';

const RETRY_MS = 500;
const logger = new Logger('Database');

/**
 * Retries work on the database for as long as it may succeed later, because an unavailable database must not fail a turn.
 * @param givesUpFor whether to stop retrying for this reason of the signal
 * @throws the error of `work` if retrying cannot help; the signal's reason
 */
export async function retry<T>(
  signal: AbortSignal,
  work: () => Promise<T>,
  givesUpFor: (reason: unknown) => boolean = () => true,
): Promise<T> {
  for (let failures = 0; ; failures += 1) {
    if (signal.aborted && givesUpFor(signal.reason)) throw signal.reason;
    try {
      return await work();
    } catch (error) {
      if (!isRepairable(error)) throw error;
      // The queries themselves log once that the database is unavailable.
      if (failures === 0 && !isDatabaseUnavailable(error)) {
        logger.error(`A statement fails and is repeated until it succeeds: ${String(error)}`);
      }
      await delay(RETRY_MS, undefined, signal.aborted ? {} : { signal }).catch(() => undefined);
    }
  }
}
