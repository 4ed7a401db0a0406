import { describe, expect, test } from '@jest/globals';
import { Lease } from './lease.js';

describe('a lease', () => {
  test('is certain until its time is over, and again once it is renewed', async () => {
    let now = 0;
    const lease = new Lease(100, () => now);
    const { signal } = new AbortController();
    await lease.certain(signal);
    now = 100;
    expect(lease.isCertain).toBe(false);
    let certain = false;
    const waited = lease.certain(signal).then(() => (certain = true));
    await Promise.resolve();
    expect(certain).toBe(false);
    lease.extend(200);
    await waited;
    expect(certain).toBe(true);
  });

  test('that is extended into the past stays uncertain', async () => {
    const stop = new AbortController();
    const lease = new Lease(100, () => 500);
    const waited = lease.certain(stop.signal);
    lease.extend(400);
    stop.abort(new Error('lost'));
    await expect(waited).rejects.toThrow('lost');
  });
});
