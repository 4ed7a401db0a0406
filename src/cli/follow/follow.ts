import { setTimeout as delay } from 'node:timers/promises';
import { Refusal } from '../../common/errors.js';
import { cursorAfter, isTerminal, readItems, type SessionStreamEvent } from './read-events.js';
import type { StreamSource } from './stream-source.js';

const RETRY_MS = [100, 500, 1_000, 2_000, 5_000];

/**
 * A session's events up to the end of its turn, however often the connection breaks on the way: it is made again, and
 * goes on after the last event. A turn that is silent for long is waited for, too.
 * @param onBroken is told why, each time.
 * @throws what the first connection failed with; later only what no further one can change.
 */
export async function* follow(
  source: StreamSource,
  from: number,
  onBroken: (reason: string) => void,
): AsyncGenerator<SessionStreamEvent> {
  let cursor = from;
  let connected = false;
  for (let attempt = 0; ; attempt += 1) {
    let reason = 'the stream ended early';
    try {
      for await (const item of readItems(source.open(cursor))) {
        if (item === 'heartbeat') continue;
        attempt = 0;
        if (item.type === 'start' && connected) continue;
        connected = true;
        cursor = cursorAfter(item) ?? cursor;
        yield item;
        if (item.type === 'stale') reason = '';
        else if (isTerminal(item)) return;
      }
    } catch (error) {
      if (!connected || error instanceof Refusal) throw error;
      reason = error instanceof Error ? error.message : String(error);
    }
    if (reason !== '') onBroken(reason);
    await delay(RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)]);
  }
}
