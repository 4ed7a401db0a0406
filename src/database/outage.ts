import { Injectable, Logger } from '@nestjs/common';
import { isDatabaseUnavailable } from '../common/database-unavailable.js';

/**
 * Whether the database answers, from what its users see. Says once that it went and once that it is back: tasks that fail
 * meanwhile because of it need not.
 */
@Injectable()
export class Outage {
  private readonly logger = new Logger('Database');
  /** Monotonic, milliseconds; `undefined` while it answers. */
  private since: number | undefined;
  private failures = 0;
  private recoveries = 0;

  get isOver(): boolean {
    return this.since === undefined;
  }

  /** Runs what asks the database, and takes note of whether it answered. */
  async watch<T>(ask: () => Promise<T>): Promise<T> {
    const { failures, recoveries } = this;
    try {
      const answer = await ask();
      // An answer to what was asked before it went says nothing.
      if (this.since !== undefined && failures === this.failures) this.end(this.since);
      return answer;
    } catch (error) {
      // Nor does what was asked before it came back, and fails now.
      if (recoveries === this.recoveries && isDatabaseUnavailable(error)) this.begin(error);
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
    this.recoveries += 1;
    const seconds = ((performance.now() - since) / 1000).toFixed(1);
    this.logger.log(`The database is available again, after ${seconds} s`);
  }
}
