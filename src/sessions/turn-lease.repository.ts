import type { OutcomeState } from '../runtimes/agent-runtime.js';
import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import { Doorbell } from '../event-log/doorbell.js';

/**
 * How far a turn has come; kept in its row so that a successor does not repeat what is done. Stages by name, with the
 * time of their start and end in milliseconds since 1970.
 */
export interface TurnProgress {
  stages?: Partial<Record<string, { startedAt: number; doneAt?: number }>>;
  /** What the output up to the committed position says about how the turn goes. */
  outcome?: OutcomeState;
}

/** A turn that this process holds the lease of, as it was when claimed. */
export interface ClaimedTurn {
  id: string;
  session_id: string;
  turn_number: number;
  prompt: string;
  /** Seconds. */
  timeout: number;
  /** Milliseconds since 1970, by the database's clock. */
  started_ms: number;
  /** Rises with every claim: whoever has an older one can write nothing. */
  fencing: number;
  commit_seq: number;
  progress: TurnProgress;
  spool_offset: number;
  spool_stdout: number;
  spool_stderr: number;
  last_log_id: number;
  provider: string;
  /** Time since the turn was accepted, by the database's clock. Milliseconds. */
  age_ms: number;
  /** Whether there is output in the log already. */
  has_output: boolean;
  /** W3C trace context of the request that asked for the turn. */
  traceparent: string | null;
}

/** A worker that waits for longer loses its leases meanwhile. */
const ANSWER_MS = 5_000;

/** The turn's sandbox, if there is one already, is within the reach of this worker and not given up. */
const REACHABLE = `
  (b.session_id IS NULL OR b.driver = $2 AND b.host IS NOT DISTINCT FROM $3 AND b.doomed_at IS NULL)`;
const CLAIM = {
  name: 'turns-claim',
  timeoutMs: ANSWER_MS,
  text: `
    WITH candidate AS (
      SELECT t.id, t.session_id, s.provider
      FROM turns t
      JOIN sessions s ON s.id = t.session_id
      WHERE t.id IN (
          (SELECT t.id FROM turns t LEFT JOIN sandboxes b USING (session_id)
           WHERE t.status = 'pending' AND ${REACHABLE}
           ORDER BY t.created_at LIMIT $4 * 4)
          UNION ALL
          (SELECT t.id FROM turns t LEFT JOIN sandboxes b USING (session_id)
           WHERE t.status = 'running' AND t.lease_expires_at <= now() AND ${REACHABLE}
             AND t.id <> ALL ($6::uuid[])
           ORDER BY t.lease_expires_at LIMIT $4 * 4))
        AND (t.status = 'pending' OR t.status = 'running' AND t.lease_expires_at <= now())
      ORDER BY t.created_at
      LIMIT $4
      FOR UPDATE OF s, t SKIP LOCKED
    ), intent AS (
      INSERT INTO sandboxes (session_id, driver, host)
      SELECT session_id, $2, $3 FROM candidate ON CONFLICT (session_id) DO NOTHING
    ), running AS (
      UPDATE sessions s SET status = 'running', updated_at = now()
      FROM candidate c WHERE s.id = c.session_id AND s.status = 'pending'
    )
    UPDATE turns t SET
      status = 'running',
      started_at = coalesce(t.started_at, now()),
      active_at = coalesce(t.active_at, now()),
      lease_owner = $1,
      lease_expires_at = now() + make_interval(secs => $5),
      fencing = t.fencing + 1
    FROM candidate c WHERE t.id = c.id
    RETURNING t.id, t.session_id, t.turn_number, t.prompt, t.timeout,
      (extract(epoch FROM t.started_at) * 1000)::float8 AS started_ms,
      t.fencing, t.commit_seq, t.progress, t.spool_offset, t.spool_stdout, t.spool_stderr,
      t.last_log_id, c.provider, t.traceparent, t.first_output_id IS NOT NULL AS has_output,
      (extract(epoch FROM now() - t.created_at) * 1000)::float8 AS age_ms`,
};
// Statements that lock several turns take them by rising id, as the commit of output does: no two wait for each other.
const RENEW = {
  name: 'turns-renew',
  timeoutMs: ANSWER_MS,
  text: `
    UPDATE turns SET lease_expires_at = now() + make_interval(secs => $3)
    WHERE id IN (
      SELECT id FROM turns WHERE id = ANY ($2) AND lease_owner = $1 AND status = 'running'
      ORDER BY id FOR UPDATE)
    RETURNING id`,
};
const HELD = {
  name: 'turns-held',
  timeoutMs: ANSWER_MS,
  text: `SELECT id FROM turns WHERE id = ANY ($2) AND lease_owner = $1 AND status = 'running'`,
};
const RELEASE = {
  name: 'turns-release',
  timeoutMs: ANSWER_MS,
  text: `
    UPDATE turns SET lease_expires_at = now(), lease_owner = NULL
    WHERE id IN (
      SELECT id FROM turns WHERE lease_owner = $1 AND status = 'running' ORDER BY id FOR UPDATE)`,
};

const EXPIRE_ALL = {
  name: 'turns-expire-all',
  text: `
    UPDATE turns SET lease_expires_at = now(), lease_owner = NULL
    WHERE status = 'running' AND lease_owner IS NOT NULL`,
};

/** Who may work on which turn: claiming by one statement, renewing, handing back. */
@Injectable()
export class TurnLeaseRepository {
  constructor(
    private readonly sql: Sql,
    private readonly doorbell: Doorbell,
  ) {}

  /**
   * Takes up to `limit` turns that are pending, or whose lease has run out, and that this worker's driver can reach,
   * oldest first. Records the intent to have a sandbox before there is one.
   * @param options.busyWith turns that this worker is at: an outage may have let their leases run out, and they are
   *   renewed, not claimed a second time.
   */
  async claim(options: {
    owner: string;
    driver: string;
    host: string | null;
    limit: number;
    leaseSeconds: number;
    busyWith: readonly string[];
  }): Promise<ClaimedTurn[]> {
    return this.sql.query<ClaimedTurn & Record<string, unknown>>(CLAIM, [
      options.owner,
      options.driver,
      options.host,
      options.limit,
      options.leaseSeconds,
      options.busyWith,
    ]);
  }

  /** @returns the turns whose lease this owner still holds; the others are lost. */
  async renew(owner: string, turnIds: readonly string[], leaseSeconds: number): Promise<string[]> {
    const rows = await this.sql.query<{ id: string }>(RENEW, [owner, turnIds, leaseSeconds]);
    return rows.map((row) => row.id);
  }

  /** As {@link renew}, but only looks. */
  async held(owner: string, turnIds: readonly string[]): Promise<string[]> {
    const rows = await this.sql.query<{ id: string }>(HELD, [owner, turnIds]);
    return rows.map((row) => row.id);
  }

  /** Ends the leases of all processes, for one that knows that they are dead. */
  async expireAll(): Promise<void> {
    await this.sql.query(EXPIRE_ALL);
  }

  /** Hands all leases of an owner back at once, and calls the other workers. */
  async release(owner: string): Promise<void> {
    await this.sql.query(RELEASE, [owner]);
    await this.doorbell.ringWork(this.sql);
  }
}
