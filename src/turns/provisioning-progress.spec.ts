import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { SystemClock } from '../common/clock.js';
import type { TurnProgress } from './turn-queue.repository.js';
import { ProvisioningProgress } from './provisioning-progress.js';
import type { TurnWork } from './turn-work.js';

const TIMEOUT_MS = 400;

/** A turn with a near deadline, and the progress that is announced for it. */
function setUp(waitedMs?: number) {
  const clock = new SystemClock();
  const progress: TurnProgress = waitedMs === undefined ? {} : { waitedMs };
  const announced: (string | undefined)[] = [];
  const started = clock.now();
  const work = {
    parts: { clock, output: { announceProgress: async () => void announced.push(progress.doing) } },
    turn: { session_id: 's', timeout: 1 },
    journal: { progress, flush: async () => undefined },
    get deadline() {
      return started + TIMEOUT_MS + (progress.waitedMs ?? 0);
    },
  } as unknown as TurnWork;
  return { doing: new ProvisioningProgress(work), progress, announced };
}

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

describe('the progress of provisioning', () => {
  it('ends at the deadline', async () => {
    const { doing } = setUp();
    await jest.advanceTimersByTimeAsync(TIMEOUT_MS + 100);
    expect(doing.signal.aborted).toBe(true);
    expect(String(doing.signal.reason)).toContain('Turn timed out after 1 seconds');
    doing.end();
  });

  it('does not count waiting for what sandboxes share', async () => {
    const { doing, progress } = setUp();
    doing.begin('Creating the sandbox');
    doing.onSharedWork('Preparing the base system');
    await jest.advanceTimersByTimeAsync(TIMEOUT_MS * 2);
    expect(doing.signal.aborted).toBe(false);
    doing.onSharedWork(null);
    expect(progress.waitedMs).toBeGreaterThanOrEqual(TIMEOUT_MS * 2 - 50);
    await jest.advanceTimersByTimeAsync(TIMEOUT_MS / 2);
    expect(doing.signal.aborted).toBe(false);
    await jest.advanceTimersByTimeAsync(TIMEOUT_MS);
    expect(doing.signal.aborted).toBe(true);
    doing.end();
  });

  it('adds to what a worker before it has waited', async () => {
    const { doing, progress } = setUp(TIMEOUT_MS);
    doing.onSharedWork(null);
    expect(progress.waitedMs).toBe(TIMEOUT_MS);
    doing.onSharedWork('Preparing the base system');
    await jest.advanceTimersByTimeAsync(50);
    doing.onSharedWork(null);
    expect(progress.waitedMs).toBeGreaterThanOrEqual(TIMEOUT_MS + 40);
    doing.end();
  });

  it('announces steps that last, but not steps that are over at once', async () => {
    const { doing, progress, announced } = setUp();
    doing.begin('Writing settings and variables');
    doing.begin('Building the environment: apt packages');
    expect(progress.doing).toBe('Building the environment: apt packages');
    await jest.advanceTimersByTimeAsync(350);
    expect(announced).toEqual(['Building the environment: apt packages']);
    doing.end();
    expect(progress.doing).toBeUndefined();
  });
});
