import { Injectable } from '@nestjs/common';
import { limitReached } from '../common/errors.js';
import type { Pages } from '../common/lists/list-request.js';
import { isUuid } from '../common/storable.js';
import { listStatement, NEWEST, NEWEST_FIRST, readPages } from '../database/list-pages.js';
import { Sql, type SqlExecutor } from '../database/sql.js';
import {
  findSandbox,
  markSandboxes,
  type SessionSandbox,
} from '../sandboxes/lifecycle/session-sandboxes.js';
import type { Budget } from '../usage/budgets.js';
import { forgetSession } from '../usage/usage.repository.js';
import { sessionUsage, type StoredUsage, turnUsage } from '../usage/usage-columns.js';
import type { EndedTurn } from './ended-turns.js';
import type { Session, Turn } from './entities/session.entity.js';
import type { PublicResource, UploadedFile } from './session-resources.js';
import { terminateLocked } from './session-termination.js';
import { type SessionStatus, allowedFrom } from './session-transitions.js';

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
      environment_version, provider, timeout, resources, secrets_sealed, budget_tokens, budget_usd)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
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
const REQUEUE = {
  name: 'sessions-requeue',
  text: `
    UPDATE sessions SET status = 'pending', turn_count = turn_count + 1,
      current_turn = turn_count + 1, exit_code = NULL, error = NULL, updated_at = now()
    WHERE id = $1 AND status = 'completed' RETURNING turn_count`,
};
const DELETE = {
  name: 'sessions-delete',
  text: `DELETE FROM sessions WHERE id = $1 AND status = ANY ($2) RETURNING id`,
};

/**
 * The columns of the session `t` and its latest turn `u`. `progress` is shown only while a worker has the turn;
 * `unattended` turns wait for one.
 */
const SESSION_COLUMNS = `
  t.id, t.agent_id AS "agentId", t.agent_version AS "agentVersion",
  t.environment_id AS "environmentId", t.environment_version AS "environmentVersion", t.provider,
  t.status, t.timeout, t.resources, t.turn_count AS "turnCount", t.current_turn AS "currentTurn",
  t.exit_code AS "exitCode", t.error, t.created_at AS "createdAt", t.updated_at AS "updatedAt",
  CASE WHEN u.status = 'running' THEN u.progress->>'doing' END AS progress,
  u.status = 'pending' OR u.status = 'running' AND u.lease_expires_at <= now() AS unattended,
  t.budget_tokens AS "budgetTokens", t.budget_usd AS "budgetUsd", ${sessionUsage('t')} AS usage`;
const SESSIONS = `
  sessions t LEFT JOIN turns u ON u.session_id = t.id AND u.turn_number = t.current_turn`;
const FIND = {
  name: 'sessions-find',
  text: `SELECT ${SESSION_COLUMNS} FROM ${SESSIONS} WHERE t.id = $1 AND t.user_id = $2`,
};
const LIST = listStatement({
  ...NEWEST_FIRST,
  name: 'sessions-list',
  from: SESSIONS,
  where: `t.user_id = $4 AND ($5::text IS NULL OR t.status = $5) AND ($6::uuid IS NULL OR t.agent_id = $6)`,
  // The length of the text, because the column itself may be compressed to a hundredth of it.
  bytes: 'octet_length(t.resources::text) + 1024',
  columns: SESSION_COLUMNS,
});
const POSITION = {
  name: 'sessions-position',
  text: `SELECT created_at AS "createdAt", id FROM sessions WHERE id = $1 AND user_id = $2`,
};
const LIST_TURNS = listStatement({
  name: 'turns-list',
  key: 't.turn_number',
  order: ['t.turn_number'],
  direction: 'ASC',
  from: 'turns t',
  where: 't.session_id = $3',
  bytes: 'octet_length(t.prompt) + 1024',
  columns: `
    t.id, t.session_id AS "sessionId", t.turn_number AS "turnNumber", t.prompt, t.timeout, t.status,
    t.exit_code AS "exitCode", t.error, t.created_at AS "createdAt", t.started_at AS "startedAt",
    t.ended_at AS "endedAt", ${turnUsage('t')} AS usage`,
});
const TURN_POSITION = {
  name: 'turns-position',
  text: `SELECT turn_number AS "turnNumber" FROM turns WHERE id = $1 AND session_id = $2`,
};

const INSERT_FILES = {
  name: 'session-files-insert',
  text: `
    INSERT INTO session_files (session_id, path, content)
    SELECT $1, path, content FROM unnest($2::text[], $3::bytea[]) AS f (path, content)`,
};
// Each may have a patch of some megabytes. Maintenance removes the rest.
const FORGET_CHANGES = {
  name: 'sessions-forget-changes',
  text: `
    DELETE FROM turn_changes WHERE ctid = ANY (ARRAY(
      SELECT ctid FROM turn_changes WHERE session_id = $1 LIMIT 20))`,
};
const BASES = {
  name: 'sessions-bases',
  text: `
    SELECT coalesce(progress->'bases', '{}'::jsonb) AS bases FROM turns
    WHERE session_id = $1 AND turn_number = 1`,
};

/** A session as clients see it. */
export interface ShownSession extends Omit<Session, 'userId' | 'secretsSealed'> {
  /** The current step of provisioning. */
  progress: string | null;
  /** Does the latest turn wait for a worker? */
  unattended: boolean | null;
  usage: StoredUsage;
}

/** A turn as clients see it. */
export interface ShownTurn extends Turn {
  usage: StoredUsage;
}

/** The sessions that a client requests. */
export interface SessionFilter {
  status?: SessionStatus;
  /** A UUID. */
  agentId?: string;
}

export interface NewSession {
  id: string;
  userId: string;
  agentId: string;
  agentVersion: number;
  environmentId: string | null;
  environmentVersion: number | null;
  provider: string;
  resources: PublicResource[];
  files: readonly UploadedFile[];
  secretsSealed: string | null;
  budget: Budget;
}

/** A new turn as a client requests it. */
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

/** The sessions of users and their turns. Every change of state is a conditional UPDATE. */
@Injectable()
export class SessionsRepository {
  constructor(private readonly sql: Sql) {}

  /** Newest first. @param after a position in the list. */
  list(
    userId: string,
    filter: SessionFilter,
    { after = NEWEST, limit }: { after?: readonly unknown[]; limit?: number },
  ): Pages<ShownSession> {
    return readPages<ShownSession & Record<string, unknown>>(this.sql, {
      statement: LIST,
      values: [userId, filter.status ?? null, filter.agentId ?? null],
      from: after,
      positionOf: ({ createdAt, id }) => [createdAt, id],
      limit,
    });
  }

  /** The position of a session in the list, regardless of the filter. */
  async position(userId: string, id: string): Promise<readonly unknown[] | undefined> {
    if (!isUuid(id)) return undefined;
    const [row] = await this.sql.query<{ createdAt: string; id: string }>(POSITION, [id, userId]);
    return row && [row.createdAt, row.id];
  }

  async find(userId: string, id: string): Promise<ShownSession | undefined> {
    if (!isUuid(id)) return undefined;
    return (await this.sql.query<ShownSession & Record<string, unknown>>(FIND, [id, userId]))[0];
  }

  /** In their order. @param after a position in the list. */
  turnsOfUnscoped(
    sessionId: string,
    { after = [0], limit }: { after?: readonly unknown[]; limit?: number },
  ): Pages<ShownTurn> {
    return readPages<ShownTurn & Record<string, unknown>>(this.sql, {
      statement: LIST_TURNS,
      values: [sessionId],
      from: after,
      positionOf: ({ turnNumber }) => [turnNumber],
      limit,
    });
  }

  async turnPositionUnscoped(
    sessionId: string,
    turnId: string,
  ): Promise<readonly unknown[] | undefined> {
    if (!isUuid(turnId)) return undefined;
    const values = [turnId, sessionId];
    const [row] = await this.sql.query<{ turnNumber: number }>(TURN_POSITION, values);
    return row && [row.turnNumber];
  }

  /**
   * Checks that the user may have one more active session, and keeps that true until the end of the transaction.
   * @throws DomainError 429.
   */
  async reserveUnderLimit(sql: SqlExecutor, userId: string, defaultLimit: number): Promise<void> {
    // A separate statement has a new snapshot, so the count includes what the previous holder of the lock committed.
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
      session.budget.tokens ?? null,
      session.budget.usd ?? null,
    ]);
    if (session.files.length > 0) {
      const { files } = session;
      await sql.query(INSERT_FILES, [
        session.id,
        files.map(({ path }) => path),
        files.map(({ content }) => content),
      ]);
    }
    await this.insertTurn(sql, session.id, 1, turn, 0);
  }

  /**
   * Locks the session until the end of the transaction. Joins no other table: after a wait for the lock, PostgreSQL
   * returns the session's current row, but joined rows as they were before the wait.
   */
  async lock(sql: SqlExecutor, userId: string, id: string): Promise<LockedSession | undefined> {
    return (
      await sql.query<LockedSession & Record<string, unknown>>(LOCK_SESSION, [id, userId])
    )[0];
  }

  /** The commits that the session's repositories began with, by mount path. */
  async basesUnscoped(id: string): Promise<Record<string, string>> {
    const [row] = await this.sql.query<{ bases: Record<string, string> }>(BASES, [id]);
    return row?.bases ?? {};
  }

  /** @returns the session's sandbox, unless it is marked for deletion. */
  async sandboxUnscoped(id: string): Promise<SessionSandbox | undefined> {
    return findSandbox(this.sql, id);
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

  /** Deletes a locked session with its turns. @returns false if its state does not allow it. */
  async delete(sql: SqlExecutor, id: string): Promise<boolean> {
    const [row] = await sql.query(DELETE, [id, allowedFrom('delete')]);
    if (!row) return false;
    await markSandboxes(sql, [id]);
    await forgetSession(sql, id);
    await sql.query(FORGET_CHANGES, [id]);
    return true;
  }

  transaction<T>(work: (sql: SqlExecutor) => Promise<T>): Promise<T> {
    return this.sql.transaction(work);
  }
}
