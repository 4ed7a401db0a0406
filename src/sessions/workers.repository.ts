import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';

const ANSWER_MS = 5_000;
/** How long ago a worker may have been heard of to count as one that is there. Seconds. */
const ALIVE_SECONDS = 60;

const BEAT = {
  name: 'workers-beat',
  timeoutMs: ANSWER_MS,
  text: `
    INSERT INTO workers (owner, driver, host, problem) VALUES ($1, $2, $3, $4)
    ON CONFLICT (owner) DO UPDATE SET seen_at = now(), problem = excluded.problem`,
};
const PROBLEM = {
  name: 'workers-problem',
  text: `
    SELECT problem FROM workers
    WHERE driver = $1 AND seen_at > now() - make_interval(secs => $2)
    ORDER BY problem IS NOT NULL, seen_at DESC LIMIT 1`,
};
const FORGET = {
  name: 'workers-forget',
  text: 'DELETE FROM workers WHERE seen_at < now() - make_interval(secs => $1)',
};

/** Which workers there are, as far as they have made themselves heard. */
@Injectable()
export class WorkersRepository {
  constructor(private readonly sql: Sql) {}

  /**
   * Says that a worker is there.
   * @param problem why it cannot make sandboxes; `null` when it can.
   */
  async beat(worker: {
    owner: string;
    driver: string;
    host: string | null;
    problem: string | null;
  }): Promise<void> {
    await this.sql.query(BEAT, [worker.owner, worker.driver, worker.host, worker.problem]);
  }

  /** @returns why no worker can make sandboxes; `null` when one can, or when none is there to ask. */
  async problem(driver: string): Promise<string | null> {
    const rows = await this.sql.query<{ problem: string | null }>(PROBLEM, [driver, ALIVE_SECONDS]);
    return rows[0]?.problem ?? null;
  }

  /** Removes the traces of workers that have not been heard of for so long. */
  async forget(seconds: number): Promise<void> {
    await this.sql.query(FORGET, [seconds]);
  }
}
