import { describe, expect, it } from '@jest/globals';
import { UserPace } from './user-pace.js';

/** A pace of 100 bytes a second with a burst of 50, with a clock that advances only while a user waits. */
function paceInItsOwnTime() {
  let now = 0;
  const clock = { monotonic: () => now };
  const pace = new UserPace(clock, { bytesPerSecond: 100, burst: 50 }, async (ms) => {
    now += ms;
  });
  return { pace, time: () => now, pass: (ms: number) => (now += ms) };
}

describe('UserPace', () => {
  it('lets a burst pass and then so many bytes a second', async () => {
    const { pace, time } = paceInItsOwnTime();
    for (let count = 0; count < 30; count += 1) {
      await pace.ready('user');
      pace.count('user', 10);
    }
    // 300 bytes: a burst of 50, the last ten on credit, and the rest at the pace.
    expect(time()).toBe(2_400);
  });

  it('makes no user wait for another one', async () => {
    const { pace, time } = paceInItsOwnTime();
    pace.count('one', 1_000_000);
    expect(pace.isReady('one')).toBe(false);
    expect(pace.isReady('other')).toBe(true);
    await pace.ready('other');
    expect(time()).toBe(0);
  });

  it('saves up no more than a burst', () => {
    const { pace, pass } = paceInItsOwnTime();
    pace.count('user', 50);
    pass(3_600_000);
    pace.count('user', 50);
    expect(pace.isReady('user')).toBe(true);
    pace.count('user', 1);
    expect(pace.isReady('user')).toBe(false);
  });

  it('remembers users that are behind, however many there are', () => {
    const { pace, pass } = paceInItsOwnTime();
    pace.count('behind', 1_000);
    for (let count = 0; count < 5_000; count += 1) {
      pass(1);
      pace.count(`user ${count}`, 1);
    }
    expect(pace.isReady('behind')).toBe(false);
  });
});
