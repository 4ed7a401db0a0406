import { setTimeout as delay } from 'node:timers/promises';
import type { Clock } from './clock.js';

/** Above this number of users, those without a backlog are forgotten. */
const FORGET_AT = 1_000;

/**
 * Spreads the bytes of one user's requests over time: a burst at once, and then a number of bytes per second. No
 * request is rejected, and no user waits for another one.
 */
export class UserPace {
  /** The time at which each user's bytes so far fit the pace; monotonic milliseconds. */
  private readonly paidUntil = new Map<string, number>();

  constructor(
    private readonly clock: Pick<Clock, 'monotonic'>,
    private readonly rate: { bytesPerSecond: number; burst: number },
    private readonly wait: (ms: number) => Promise<unknown> = delay,
  ) {}

  /** Counts bytes that were moved. */
  count(userId: string, bytes: number): void {
    const now = this.clock.monotonic();
    if (this.paidUntil.size >= FORGET_AT) this.forget(now);
    const from = Math.max(now, this.paidUntil.get(userId) ?? 0);
    this.paidUntil.set(userId, from + (bytes / this.rate.bytesPerSecond) * 1000);
  }

  /** May the user move further bytes? */
  isReady(userId: string): boolean {
    return this.msUntilReady(userId) <= 0;
  }

  /** Waits until the user may move further bytes. */
  async ready(userId: string): Promise<void> {
    for (;;) {
      const ms = this.msUntilReady(userId);
      if (ms <= 0) return;
      await this.wait(Math.ceil(ms));
    }
  }

  private msUntilReady(userId: string): number {
    const { bytesPerSecond, burst } = this.rate;
    const ahead = (this.paidUntil.get(userId) ?? -Infinity) - this.clock.monotonic();
    return ahead - (burst / bytesPerSecond) * 1000;
  }

  private forget(now: number): void {
    for (const [userId, until] of this.paidUntil) {
      if (until <= now) this.paidUntil.delete(userId);
    }
  }
}
