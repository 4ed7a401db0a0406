import { Injectable } from '@nestjs/common';
import { InjectRepository } from '@nestjs/typeorm';
import { Repository } from 'typeorm';
import { limitReached } from '../common/errors.js';
import { Sql, type SqlExecutor } from '../database/sql.js';
import type { EndedTurn } from './ended-turns.js';
import { Session } from './entities/session.entity.js';
import { Turn } from './entities/turn.entity.js';
import type { PublicResource } from './session-resources.js';
import type { SessionStatus } from './session-transitions.js';
import { allowedFrom } from './session-transitions.js';

const LOCK_USER = {
  name: 'sessions-lock-user',
  text: `
    SELECT session_limit,
      (SELECT count(*) FROM sessions
       WHERE user_id = $1 AND status IN ('pending', 'running')) AS active
    FROM users WHERE id = $1`,
};
const LOCK_LIMIT = {
  name: 'sessions-lock-limit',
  text: `SELECT pg_advisory_xact_lock(hashtextextended('session-limit:' || $1, 0))`,
};
const INSERT_SESSION = {
  name: 'sessions-insert',
  text: `
    INSERT INTO sessions (id, user_id, agent_id, agent_version, environment_id,
      environment_version, provider, timeout, resources, secrets_sealed)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
};
const INSERT_TURN = {
  name: 'turns-insert',
  text: `
    INSERT INTO turns (session_id, turn_number, prompt, timeout, last_log_id, traceparent)
    VALUES ($1, $2, $3, $4, $5, $6)`,
};
const LOCK_SESSION = {
  name: 'sessions-lock',
  text: `
    SELECT status, timeout FROM sessions WHERE id = $1 AND user_id = $2 FOR UPDATE`,
};
const LAST_LOG_ID = {
  name: 'sessions-last-log-id',
  text: `
    SELECT t.last_log_id FROM sessions s
    JOIN turns t ON t.session_id = s.id AND t.turn_number = s.current_turn
    WHERE s.id = $1`,
};
const SANDBOX_PLACE = {
  name: 'sandboxes-place',
  text: `
    SELECT coalesce(sandbox_id, session_id) AS id, host
    FROM sandboxes WHERE session_id = $1 AND doomed_at IS NULL`,
};
const CLAIM_SANDBOX = {
  name: 'sandboxes-wake',
  text: `
    UPDATE sandboxes SET idle_since = NULL
    WHERE session_id = $1 AND doomed_at IS NULL RETURNING session_id`,
};
const REQUEUE = {
  name: 'sessions-requeue',
  text: `
    UPDATE sessions SET status = 'pending', turn_count = turn_count + 1,
      current_turn = turn_count + 1, exit_code = NULL, error = NULL, updated_at = now()
    WHERE id = $1 AND status = 'completed' RETURNING turn_count`,
};
/** Columns of {@link EndedTurn}, of the turn `t` and its session `s`. */
export const ENDED_TURN = `
  t.id, s.id AS "sessionId", t.turn_number AS "turnNumber", s.provider, t.traceparent,
  (extract(epoch FROM now() - t.created_at) * 1000)::float8 AS "ageMs"`;
const TERMINATE = {
  name: 'sessions-terminate',
  text: `
    UPDATE sessions SET status = 'terminated', updated_at = now()
    WHERE id = $1 AND status = ANY ($2) RETURNING id`,
};
const TERMINATE_TURN = {
  name: 'turns-terminate',
  text: `
    UPDATE turns t SET status = 'terminated', ended_at = now(), lease_owner = NULL,
      lease_expires_at = NULL, fencing = fencing + 1
    FROM sessions s
    WHERE s.id = $1 AND t.session_id = $1 AND t.status IN ('pending', 'running')
    RETURNING ${ENDED_TURN}`,
};
const DOOM_SANDBOX = {
  name: 'sandboxes-doom',
  text: `UPDATE sandboxes SET doomed_at = coalesce(doomed_at, now()) WHERE session_id = $1`,
};
const DELETE = {
  name: 'sessions-delete',
  text: `DELETE FROM sessions WHERE id = $1 AND status = ANY ($2) RETURNING id`,
};

export interface NewSession {
  id: string;
  userId: string;
  agentId: string;
  agentVersion: number;
  environmentId: string | null;
  environmentVersion: number | null;
  provider: string;
  resources: PublicResource[];
  secretsSealed: string | null;
}

/** What a request asks of a new turn. */
export interface NewTurn {
  prompt: string;
  timeout: number;
  /** W3C trace context of the request. */
  traceparent: string | undefined;
}

export interface LockedSession {
  status: SessionStatus;
  timeout: number;
}

/** Sessions and their turns as clients act on them. Every change of state is a conditional UPDATE. */
@Injectable()
export class SessionsRepository {
  constructor(
    private readonly sql: Sql,
    @InjectRepository(Session) private readonly sessions: Repository<Session>,
    @InjectRepository(Turn) private readonly turns: Repository<Turn>,
  ) {}

  async list(userId: string): Promise<Session[]> {
    return this.sessions.find({ where: { userId }, order: { createdAt: 'DESC', id: 'DESC' } });
  }

  async find(userId: string, id: string): Promise<Session | null> {
    return this.sessions.findOneBy({ id, userId });
  }

  async turnsOfUnscoped(sessionId: string): Promise<Turn[]> {
    return this.turns.find({ where: { sessionId }, order: { turnNumber: 'ASC' } });
  }

  /**
   * Makes sure, until the end of the transaction, that one more active session does not exceed the user's limit.
   * @throws Refusal 429.
   */
  async reserveUnderLimit(sql: SqlExecutor, userId: string, defaultLimit: number): Promise<void> {
    // The count has to see what the previous holder of the lock committed: two statements, two snapshots.
    await sql.query(LOCK_LIMIT, [userId]);
    const [row] = await sql.query<{ session_limit: number | null; active: number }>(LOCK_USER, [
      userId,
    ]);
    const limit = row?.session_limit ?? defaultLimit;
    if (row && row.active >= limit) throw limitReached(limit, row.active);
  }

  /** Inserts the session with its first turn. */
  async insert(sql: SqlExecutor, session: NewSession, turn: NewTurn): Promise<void> {
    await sql.query(INSERT_SESSION, [
      session.id,
      session.userId,
      session.agentId,
      session.agentVersion,
      session.environmentId,
      session.environmentVersion,
      session.provider,
      turn.timeout,
      JSON.stringify(session.resources),
      session.secretsSealed,
    ]);
    await this.insertTurn(sql, session.id, 1, turn, 0);
  }

  /**
   * Keeps everybody else from changing the session until the end of the transaction. Reads the session alone: what a
   * statement that waited for a lock joins with is as old as its wait.
   */
  async lock(sql: SqlExecutor, userId: string, id: string): Promise<LockedSession | undefined> {
    return (
      await sql.query<LockedSession & Record<string, unknown>>(LOCK_SESSION, [id, userId])
    )[0];
  }

  /** @returns the session's sandbox and its host, `null` for one that is reachable from everywhere. */
  async sandboxUnscoped(id: string): Promise<{ id: string; host: string | null } | undefined> {
    return (await this.sql.query<{ id: string; host: string | null }>(SANDBOX_PLACE, [id]))[0];
  }

  /** @returns false when the sandbox was given up in the meantime. */
  async wakeSandbox(sql: SqlExecutor, id: string): Promise<boolean> {
    return (await sql.query(CLAIM_SANDBOX, [id])).length > 0;
  }

  /** Queues a further turn; the session is locked and `completed`. */
  async requeue(sql: SqlExecutor, id: string, turn: NewTurn): Promise<void> {
    const [last] = await sql.query<{ last_log_id: number }>(LAST_LOG_ID, [id]);
    const [row] = await sql.query<{ turn_count: number }>(REQUEUE, [id]);
    if (!last || !row) throw new Error('A locked session changed its state');
    await this.insertTurn(sql, id, row.turn_count, turn, last.last_log_id);
  }

  private async insertTurn(
    sql: SqlExecutor,
    sessionId: string,
    turnNumber: number,
    { prompt, timeout, traceparent }: NewTurn,
    lastLogId: number,
  ): Promise<void> {
    const values = [sessionId, turnNumber, prompt, timeout, lastLogId, traceparent ?? null];
    await sql.query(INSERT_TURN, values);
  }

  /** See {@link terminateLocked}. */
  async terminate(sql: SqlExecutor, id: string): Promise<EndedTurn[]> {
    return terminateLocked(sql, id);
  }

  /** Removes the session with its turns; it is locked. @returns false when its state does not allow it. */
  async delete(sql: SqlExecutor, id: string): Promise<boolean> {
    const [row] = await sql.query(DELETE, [id, allowedFrom('delete')]);
    if (!row) return false;
    await sql.query(DOOM_SANDBOX, [id]);
    return true;
  }

  transaction<T>(work: (sql: SqlExecutor) => Promise<T>): Promise<T> {
    return this.sql.transaction(work);
  }
}

/**
 * Ends whatever a locked session does, and gives its sandbox up; nothing when its state does not allow it.
 * @returns the turn that was ended with it, if it had one under way.
 */
export async function terminateLocked(sql: SqlExecutor, id: string): Promise<EndedTurn[]> {
  const [row] = await sql.query(TERMINATE, [id, allowedFrom('terminate')]);
  if (!row) return [];
  const turns = await sql.query<EndedTurn & Record<string, unknown>>(TERMINATE_TURN, [id]);
  await sql.query(DOOM_SANDBOX, [id]);
  return turns;
}
