import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { type SandboxDriver, SandboxError } from '../sandboxes/driver/sandbox-driver.js';
import { Lease, leasedDriver } from './turn-leases.js';

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

describe('a call of a driver that hangs', () => {
  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => void jest.useRealTimers());

  test.each([
    'create',
    'restrictNetwork',
    'writeFiles',
    'runScript',
    'launch',
    'packageHosts',
    'discardSpool',
  ] as const)('in %s ends soon after its signal', async (name) => {
    const hanging = { [name]: () => new Promise(() => undefined) } as unknown as SandboxDriver;
    const lease = new Lease(Infinity, () => 0);
    const driver = leasedDriver(hanging, lease, new AbortController().signal);
    const over = new AbortController();
    const call = (driver[name] as (options: object) => Promise<unknown>)({
      signal: over.signal,
    });
    let ended: unknown;
    call.catch((error: unknown) => (ended = error));
    await jest.advanceTimersByTimeAsync(3_600_000);
    expect(ended).toBeUndefined();
    over.abort();
    await jest.advanceTimersByTimeAsync(60_000);
    expect(ended).toMatchObject({ kind: 'aborted' });
  });

  test('is waited for while it ends by itself', async () => {
    const work = Promise.withResolvers<never>();
    const driver = leasedDriver(
      { runScript: () => work.promise } as unknown as SandboxDriver,
      new Lease(Infinity, () => 0),
      new AbortController().signal,
    );
    const call = driver.runScript({ signal: AbortSignal.abort() } as never);
    await jest.advanceTimersByTimeAsync(1_000);
    work.reject(new SandboxError('aborted', 'everything was killed'));
    await expect(call).rejects.toThrow('everything was killed');
  });
});
