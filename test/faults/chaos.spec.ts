import { expect } from '@jest/globals';
import { describeWith } from '../support/requirements.js';
import { test } from '@jest/globals';
import { runChaos } from './chaos.js';

describeWith(['bubblewrap'], 'processes, connections and the database fail at random', () => {
  test('and every stream is complete, once, in order; nothing is left', async () => {
    const report = await runChaos({
      seed: 4,
      seconds: 40,
      sessions: 4,
      readersPerSession: 2,
      turnSeconds: [2, 8],
      pauseMs: [400, 1_800],
      log: () => undefined,
    });
    const { lost, repeated, reordered, problems } = report.tally;
    expect({ problems, lost, repeated, reordered }).toEqual({
      problems: [],
      lost: 0,
      repeated: 0,
      reordered: 0,
    });
    expect(report.orphans).toEqual([]);
    expect(report.duplicates).toBe(0);
    // That something happened at all.
    expect(report.tally.turns).toBeGreaterThan(4);
    expect([...report.faults.values()].reduce((sum, count) => sum + count, 0)).toBeGreaterThan(10);
  }, 400_000);
});
