import { Logger } from '@nestjs/common';
import { isDatabaseUnavailable } from '../common/database-unavailable.js';

/**
 * Whether the database answers, from what its users see. Says once that it went and once that it is back: tasks that fail
 * meanwhile because of it need not.
 */
export class Outage {
  private readonly logger = new Logger('Database');
  /** Monotonic, milliseconds; `undefined` while it answers. */
  private since: number | undefined;
  private failures = 0;

  get isOver(): boolean {
    return this.since === undefined;
  }

  /** Runs what asks the database, and takes note of whether it answered. */
  async watch<T>(ask: () => Promise<T>): Promise<T> {
    const before = this.failures;
    try {
      const answer = await ask();
      // An answer to what was asked before it went says nothing.
      if (this.since !== undefined && before === this.failures) this.end(this.since);
      return answer;
    } catch (error) {
      if (isDatabaseUnavailable(error)) this.begin(error);
      throw error;
    }
  }

  private begin(error: unknown): void {
    this.failures += 1;
    if (this.since !== undefined) return;
    this.since = performance.now();
    this.logger.warn(`The database is unavailable: ${String(error)}`);
  }

  private end(since: number): void {
    this.since = undefined;
    const seconds = ((performance.now() - since) / 1000).toFixed(1);
    this.logger.log(`The database is available again, after ${seconds} s`);
  }
}
