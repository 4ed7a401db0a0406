import { expect, test } from '@jest/globals';
import { OrphanWatch } from './sandbox-reaper.service.js';

test('a sandbox is an orphan once it had no record in any listing during the grace period', () => {
  const watch = new OrphanWatch(100);
  expect(watch.observe(['a'], 0)).toEqual({ expired: [], fresh: ['a'] });
  expect(watch.observe(['a', 'b'], 60)).toEqual({ expired: [], fresh: ['b'] });
  expect(watch.observe(['a', 'b'], 100)).toEqual({ expired: ['a'], fresh: [] });
  // The grace period starts again for a sandbox that had a record in between.
  expect(watch.observe(['a'], 120)).toEqual({ expired: ['a'], fresh: [] });
  expect(watch.observe(['a', 'b'], 170)).toEqual({ expired: ['a'], fresh: ['b'] });
  expect(watch.observe(['b'], 269)).toEqual({ expired: [], fresh: [] });
  expect(watch.observe(['b'], 270)).toEqual({ expired: ['b'], fresh: [] });
});
