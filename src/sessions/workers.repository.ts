import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import type { SandboxPlace } from '../sandboxes/sandbox-host.js';

const ANSWER_MS = 5_000;
/** How long after its last heartbeat a worker counts as alive. Seconds. */
export const ALIVE_SECONDS = 60;

const BEAT = {
  name: 'workers-beat',
  timeoutMs: ANSWER_MS,
  text: `
    INSERT INTO workers (owner, driver, host, problem, slots, url) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (owner) DO UPDATE SET
      seen_at = now(), problem = excluded.problem, slots = excluded.slots, url = excluded.url`,
};
const STOPPED = {
  name: 'workers-stopped',
  timeoutMs: ANSWER_MS,
  text: 'UPDATE workers SET slots = 0, url = NULL WHERE owner = $1',
};
const ADDRESSES = {
  name: 'workers-addresses',
  text: `
    SELECT url FROM workers
    WHERE driver = $1 AND host IS NOT DISTINCT FROM $2 AND url IS NOT NULL
      AND seen_at > now() - make_interval(secs => $3)
    ORDER BY seen_at DESC LIMIT $4`,
};
/** How many workers of a place are tried. */
const MOST_ADDRESSES = 3;
const PROBLEM = {
  name: 'workers-problem',
  text: `
    SELECT problem FROM workers
    WHERE driver = $1 AND seen_at > now() - make_interval(secs => $2)
    ORDER BY problem IS NOT NULL, seen_at DESC LIMIT 1`,
};
const LIST = {
  name: 'workers-list',
  text: `
    SELECT w.owner AS id, w.driver, w.host, w.problem, w.slots, w.started_at, w.seen_at,
      w.seen_at > now() - make_interval(secs => $1) AND w.slots IS DISTINCT FROM 0 AS alive,
      (SELECT count(*)::int FROM turns t
       WHERE t.status = 'running' AND t.lease_owner = w.owner AND t.lease_expires_at > now())
        AS running
    FROM workers w ORDER BY alive DESC, w.seen_at DESC, w.owner LIMIT $2`,
};
const FORGET = {
  name: 'workers-forget',
  text: 'DELETE FROM workers WHERE seen_at < now() - make_interval(secs => $1)',
};

/** A worker as operators see it. */
export interface ListedWorker {
  id: string;
  driver: string;
  host: string | null;
  /** Why it cannot make sandboxes; `null` if it can. */
  problem: string | null;
  /** How many turns it runs at a time; 0 once it has stopped, `null` if that is unknown. */
  slots: number | null;
  /** How many turns it runs now. */
  running: number;
  alive: boolean;
  started_at: string;
  seen_at: string;
}

/** The heartbeats of all workers. */
@Injectable()
export class WorkersRepository {
  constructor(private readonly sql: Sql) {}

  /**
   * Records a heartbeat of a worker.
   * @param worker.problem why it cannot make sandboxes; `null` if it can.
   * @param worker.slots how many turns it runs at a time.
   * @param worker.url where it serves the files of its sandboxes; `null` if it does not.
   */
  async beat(worker: {
    owner: string;
    driver: string;
    host: string | null;
    problem: string | null;
    slots: number;
    url: string | null;
  }): Promise<void> {
    const { owner, driver, host, problem, slots, url } = worker;
    await this.sql.query(BEAT, [owner, driver, host, problem, slots, url]);
  }

  /** @returns where live workers serve the files of the sandboxes of a place, the last one seen first. */
  async addresses({ driver, host }: SandboxPlace): Promise<string[]> {
    const values = [driver, host, ALIVE_SECONDS, MOST_ADDRESSES];
    const rows = await this.sql.query<{ url: string }>(ADDRESSES, values);
    return rows.map(({ url }) => url);
  }

  /** Records that a worker has stopped, so that nobody waits for it. Its host still counts as seen. */
  async stopped(owner: string): Promise<void> {
    await this.sql.query(STOPPED, [owner]);
  }

  /** @returns why no worker can make sandboxes; `null` if one can, or if no worker is alive. */
  async problem(driver: string): Promise<string | null> {
    const rows = await this.sql.query<{ problem: string | null }>(PROBLEM, [driver, ALIVE_SECONDS]);
    return rows[0]?.problem ?? null;
  }

  /** The workers that are alive, then those that are not, the last one seen first. @param limit the most of them */
  async list(limit: number): Promise<ListedWorker[]> {
    return this.sql.query<ListedWorker & Record<string, unknown>>(LIST, [ALIVE_SECONDS, limit]);
  }

  /** Deletes the rows of workers whose last heartbeat is older than this. */
  async forget(seconds: number): Promise<void> {
    await this.sql.query(FORGET, [seconds]);
  }
}
