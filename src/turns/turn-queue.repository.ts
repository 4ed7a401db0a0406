import type { OutcomeState } from '../runtimes/agent-runtime.js';
import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import { CLAIM, CLAIMABLE, LEASE_ANSWER_MS } from './claim-statement.js';
import { Notifier } from '../event-log/log-notifications.js';

/**
 * The progress of a turn. It is stored in the turn's row, so that a worker that takes over does not repeat finished
 * steps. Stages by name, with the time of their start and end in milliseconds since 1970.
 */
export interface TurnProgress {
  stages?: Partial<Record<string, { startedAt: number; doneAt?: number }>>;
  /** The outcome according to the output up to the committed position. */
  outcome?: OutcomeState;
  /** The commits that the session's repositories began with, by mount path. Of the first turn only. */
  bases?: Record<string, string>;
  /** The current step of provisioning, for people. Absent once the sandbox is ready. */
  doing?: string;
  /**
   * How long the turn has waited for resources that sandboxes share. This does not count as the turn's own time.
   * Milliseconds.
   */
  waitedMs?: number;
}

/** A turn whose lease this process holds, as it was when claimed. */
export interface ClaimedTurn {
  id: string;
  session_id: string;
  turn_number: number;
  prompt: string;
  /** Seconds. */
  timeout: number;
  /** Milliseconds since 1970, by the database's clock. */
  started_ms: number;
  user_id: string;
  /** The fencing token increases with every claim. A worker with an older one cannot write. */
  fencing: number;
  /**
   * How often the turn was claimed since it last made progress, including this time. Does not count claims after a
   * worker handed the turn over.
   */
  claims: number;
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
  /** W3C trace context of the request that created the turn. */
  traceparent: string | null;
}

// Statements that lock several turns skip locked ones, so that a locked turn does not delay others.
const RENEW = {
  name: 'turns-renew',
  timeoutMs: LEASE_ANSWER_MS,
  text: `
    WITH renewed AS (
      UPDATE turns SET
        lease_expires_at = now() + make_interval(secs => $3),
        claims = CASE WHEN id = ANY ($4) THEN 0 ELSE claims END
      WHERE id IN (
        SELECT id FROM turns WHERE id = ANY ($2) AND lease_owner = $1 AND status = 'running'
        FOR UPDATE SKIP LOCKED)
      RETURNING id
    )
    SELECT t.id, r.id IS NOT NULL AS renewed FROM turns t LEFT JOIN renewed r USING (id)
    WHERE t.id = ANY ($2) AND t.lease_owner = $1 AND t.status = 'running'`,
};
const RENEW_WAITING = {
  name: 'turns-renew-waiting',
  text: `
    UPDATE turns SET lease_expires_at = now() + make_interval(secs => $3)
    WHERE id IN (
      SELECT id FROM turns WHERE id = ANY ($2) AND lease_owner = $1 AND status = 'running'
      ORDER BY id FOR UPDATE)
    RETURNING id`,
};
const WAIT_BRIEFLY = {
  name: 'turns-wait-briefly',
  text: `SELECT set_config('lock_timeout', '1s', true)`,
};
const HELD = {
  name: 'turns-held',
  timeoutMs: LEASE_ANSWER_MS,
  text: `SELECT id FROM turns WHERE id = ANY ($2) AND lease_owner = $1 AND status = 'running'`,
};
// A worker that hands a turn over has not failed, so the claim does not count.
const RELEASE = {
  name: 'turns-release',
  timeoutMs: LEASE_ANSWER_MS,
  text: `
    UPDATE turns SET lease_expires_at = now(), lease_owner = NULL, claims = greatest(claims - 1, 0)
    WHERE id IN (
      SELECT id FROM turns WHERE id = ANY ($2) AND lease_owner = $1 AND status = 'running'
      FOR UPDATE SKIP LOCKED)`,
};
const LEASED = {
  name: 'turns-leased',
  timeoutMs: LEASE_ANSWER_MS,
  text: `SELECT id FROM turns WHERE lease_owner = $1 AND status = 'running' ORDER BY id`,
};
const UNCOUNT = {
  name: 'turns-uncount-claim',
  timeoutMs: LEASE_ANSWER_MS,
  text: `
    UPDATE turns SET claims = claims - 1
    WHERE id IN (
      SELECT id FROM turns WHERE id = ANY ($1) AND status = 'running' AND claims > 0
      FOR UPDATE SKIP LOCKED)`,
};
const EXPIRE_ALL = {
  name: 'turns-expire-all',
  text: `
    UPDATE turns SET lease_expires_at = now(), lease_owner = NULL
    WHERE status = 'running' AND lease_owner IS NOT NULL`,
};

/** A turn that the worker still holds. */
export interface LeaseRenewal {
  id: string;
  /** False if another connection has locked its row at the moment. */
  renewed: boolean;
}

/** The turns that a worker requests. */
export interface ClaimRequest {
  owner: string;
  driver: string;
  host: string | null;
  limit: number;
  leaseSeconds: number;
  /**
   * Turns to leave out: those that this worker runs, because their leases are renewed even if they expired during an
   * outage, and those that it could not claim a moment ago.
   */
  except: readonly string[];
  /** The users of the turns that this worker runs, one entry for each turn. Users with few entries come first. */
  users: readonly string[];
  /** May one of them be a suspect: a turn without progress since its last claim? */
  suspect: boolean;
  /** The only turns to take. Default: any. */
  only?: readonly string[];
}

/** Claims, renews and releases the leases of turns. */
@Injectable()
export class TurnLeaseRepository {
  constructor(
    private readonly sql: Sql,
    private readonly notifier: Notifier,
  ) {}

  /**
   * Claims up to `limit` turns that are pending or whose lease has expired, and whose sandbox this worker can reach.
   * Alternates between users and takes each user's oldest turn first. Records the sandbox of a new session before it is
   * made.
   */
  async claim(request: ClaimRequest): Promise<ClaimedTurn[]> {
    return this.sql.query<ClaimedTurn & Record<string, unknown>>(CLAIM, valuesOf(request));
  }

  /** The turns that {@link claim} would take, in its order. Takes none. */
  async claimable(request: ClaimRequest): Promise<string[]> {
    return (await this.sql.query<{ id: string }>(CLAIMABLE, valuesOf(request))).map(({ id }) => id);
  }

  /**
   * @param harmless turns that this worker has held for long enough to know that they do not crash workers.
   * @returns the turns whose lease this owner still holds; the others are lost.
   */
  async renew(
    owner: string,
    turnIds: readonly string[],
    leaseSeconds: number,
    harmless: readonly string[],
  ): Promise<LeaseRenewal[]> {
    const values = [owner, turnIds, leaseSeconds, harmless];
    return this.sql.query<LeaseRenewal & Record<string, unknown>>(RENEW, values);
  }

  /**
   * Like {@link renew}, for the turns that it has skipped. Waits for their locks, which commits of a busy turn hold
   * often but only briefly.
   * @returns those that were renewed. @throws if one of them stays locked
   */
  async renewWaiting(
    owner: string,
    turnIds: readonly string[],
    leaseSeconds: number,
  ): Promise<string[]> {
    return this.sql.transaction(async (sql) => {
      await sql.query(WAIT_BRIEFLY);
      const rows = await sql.query<{ id: string }>(RENEW_WAITING, [owner, turnIds, leaseSeconds]);
      return rows.map(({ id }) => id);
    });
  }

  /** Like {@link renew}, but changes nothing. */
  async held(owner: string, turnIds: readonly string[]): Promise<string[]> {
    const rows = await this.sql.query<{ id: string }>(HELD, [owner, turnIds]);
    return rows.map((row) => row.id);
  }

  /** Ends the leases of all processes. Only for a process that knows that all others are dead. */
  async expireAll(): Promise<void> {
    await this.sql.query(EXPIRE_ALL);
  }

  /** The turns whose lease an owner holds. */
  async leased(owner: string): Promise<string[]> {
    return (await this.sql.query<{ id: string }>(LEASED, [owner])).map(({ id }) => id);
  }

  /** Releases leases at once. The caller must call {@link callWorkers} afterwards. */
  async release(owner: string, turnIds: readonly string[]): Promise<void> {
    await this.sql.query(RELEASE, [owner, turnIds]);
  }

  /** Notifies the other workers that there are turns to claim. */
  async callWorkers(): Promise<void> {
    await this.notifier.sendWork(this.sql);
  }

  /**
   * Removes the last claim of these turns from their count, because their worker lost them without dying, for example
   * when the database was unavailable for longer than a lease. So only claims that ended with the death of their worker
   * add up.
   */
  async uncount(turnIds: readonly string[]): Promise<void> {
    await this.sql.query(UNCOUNT, [turnIds]);
  }
}

function valuesOf(request: ClaimRequest): unknown[] {
  const { owner, driver, host, limit, leaseSeconds, except, users, only, suspect } = request;
  return [owner, driver, host, limit, leaseSeconds, except, users, only ?? null, suspect];
}
