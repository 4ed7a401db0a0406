import { describe, expect, it } from '@jest/globals';
import { RefusalLog, type RefusalEvent } from './refusals.js';

describe('RefusalLog', () => {
  it('passes on a bounded number in a window and says how many it left out', () => {
    let now = 0;
    const events: RefusalEvent[] = [];
    const log = new RefusalLog(
      (event) => events.push(event),
      2,
      () => now,
    );
    for (let i = 0; i < 5; i += 1)
      log.refused({ name: `${String(i)}.example`, why: 'not allowed' });
    expect(events.map((event) => event.name)).toEqual(['0.example', '1.example']);
    now = 10_000;
    log.refused({ name: 'x'.repeat(1000), port: 443, why: 'not allowed' });
    log.refused({ name: 'y', why: 'not allowed' });
    expect(events.slice(2)).toEqual([
      { kind: 'refused', name: 'x'.repeat(255), port: 443, why: 'not allowed', suppressed: 3 },
      { kind: 'refused', name: 'y', why: 'not allowed' },
    ]);
  });
});
