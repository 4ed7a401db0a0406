import { notFound } from '../common/errors.js';
import { isUuid } from '../common/storable.js';
import type { Sql } from '../database/sql.js';
import type { Notifier } from '../event-log/log-notifications.js';
import type { SandboxState } from '../sandboxes/lifecycle/sandbox-states.js';
import { refusalOf, type SessionStatus } from './session-transitions.js';
import { terminateLocked } from './session-termination.js';

const LIST = {
  name: 'operations-sessions',
  text: `
    SELECT s.id, u.name AS user, s.provider, s.status, s.turn_count AS turns, s.created_at AS created,
      s.error
    FROM sessions s JOIN users u ON u.id = s.user_id
    WHERE ($1::text IS NULL OR u.name = $1) AND ($2::text IS NULL OR s.status = $2)
      AND ($3::text IS NULL OR s.provider = $3) AND ($4::uuid IS NULL OR s.agent_id = $4)
      AND ($5::float8 IS NULL OR s.created_at >= now() - make_interval(secs => $5))
    ORDER BY s.created_at DESC, s.id DESC LIMIT $6`,
};
const FIND = {
  name: 'operations-session',
  text: `
    SELECT s.id, u.name AS user, s.user_id, s.provider, s.status, s.agent_id, s.agent_version,
      s.environment_id, s.environment_version, s.timeout, s.turn_count AS turns, s.exit_code, s.error,
      s.created_at AS created, s.updated_at AS updated, b.driver AS sandbox_driver,
      b.sandbox_id AS sandbox_adopted,
      b.host AS sandbox_host, b.state AS sandbox_state, b.state_since AS sandbox_state_since,
      CASE b.state WHEN 'idle' THEN b.state_since END AS sandbox_idle_since,
      CASE b.state WHEN 'deleting' THEN b.state_since END AS sandbox_given_up
    FROM sessions s JOIN users u ON u.id = s.user_id
    LEFT JOIN sandboxes b ON b.session_id = s.id
    WHERE s.id = $1`,
};
const TURNS = {
  name: 'operations-turns',
  text: `
    SELECT turn_number AS turn, status, exit_code, error, created_at AS created, started_at AS started,
      ended_at AS ended, lease_owner AS worker,
      (extract(epoch FROM started_at - created_at) * 1000)::float8 AS waited_ms,
      (extract(epoch FROM coalesce(ended_at, now()) - started_at) * 1000)::float8 AS ran_ms
    FROM turns WHERE session_id = $1 ORDER BY turn_number`,
};
const WAITING = {
  name: 'operations-waiting',
  text: `
    SELECT s.id, u.name AS user, s.provider, t.turn_number AS turn, t.created_at AS waiting_since
    FROM turns t JOIN sessions s ON s.id = t.session_id JOIN users u ON u.id = s.user_id
    WHERE t.status = 'pending' OR t.status = 'running' AND t.lease_expires_at <= now()
    ORDER BY t.created_at, t.id LIMIT $1`,
};
const LOCK = {
  name: 'operations-lock',
  text: 'SELECT status FROM sessions WHERE id = $1 FOR UPDATE',
};

/** A session of any user as operators see it. */
export interface SessionRecord {
  id: string;
  user: string;
  provider: string;
  status: SessionStatus;
  turns: number;
  created: string;
  error: string | null;
}

/** A session whose turn no worker has. */
export interface WaitingSession {
  id: string;
  user: string;
  provider: string;
  turn: number;
  waiting_since: string;
}

/** All that operators see of a session: no prompt, no output, no secret. */
export interface SessionDetails extends SessionRecord {
  user_id: string;
  agent_id: string;
  agent_version: number;
  environment_id: string | null;
  environment_version: number | null;
  timeout: number;
  exit_code: number | null;
  updated: string;
  /** `null` if the session has no sandbox on record. */
  sandbox_driver: string | null;
  sandbox_host: string | null;
  /** The name of the sandbox if it was made before the session, and so is not named after it. */
  sandbox_adopted: string | null;
  sandbox_state: SandboxState | null;
  sandbox_state_since: string | null;
  sandbox_idle_since: string | null;
  sandbox_given_up: string | null;
}

/** A turn as operators see it. */
export interface TurnDetails {
  turn: number;
  status: SessionStatus;
  exit_code: number | null;
  error: string | null;
  created: string;
  started: string | null;
  ended: string | null;
  /** The worker that holds its lease. */
  worker: string | null;
  /** From the request until a worker took it. */
  waited_ms: number | null;
  /** Provisioning and runtime; up to now while it runs. */
  ran_ms: number | null;
}

/** Operators' access to the sessions of all users. */
export class SessionOperations {
  constructor(
    private readonly sql: Sql,
    private readonly notifier: Pick<Notifier, 'sendChange' | 'sendWork'>,
  ) {}

  /** Newest first. Filters are optional. */
  async list(filter: {
    user?: string;
    status?: SessionStatus;
    provider?: string;
    agentId?: string;
    /** Seconds. */
    newerThan?: number;
    limit: number;
  }): Promise<SessionRecord[]> {
    const { user, status, provider, agentId, newerThan, limit } = filter;
    if (agentId !== undefined && !isUuid(agentId)) return [];
    return this.sql.query<SessionRecord & Record<string, unknown>>(LIST, [
      user ?? null,
      status ?? null,
      provider ?? null,
      agentId ?? null,
      newerThan ?? null,
      limit,
    ]);
  }

  /** The sessions that wait for a worker, the longest waiting one first. @param limit the most of them */
  async waiting(limit: number): Promise<WaitingSession[]> {
    return this.sql.query<WaitingSession & Record<string, unknown>>(WAITING, [limit]);
  }

  /** @throws DomainError if there is no such session. */
  async find(id: string): Promise<SessionDetails> {
    const [session] = isUuid(id)
      ? await this.sql.query<SessionDetails & Record<string, unknown>>(FIND, [id])
      : [];
    if (!session) throw noSession(id);
    return session;
  }

  /** In order. */
  async turns(id: string): Promise<TurnDetails[]> {
    return this.sql.query<TurnDetails & Record<string, unknown>>(TURNS, [id]);
  }

  /** Ends a session for good. @throws DomainError if it does not exist, or its state does not allow it. */
  async terminate(id: string): Promise<void> {
    await this.sql.transaction(async (sql) => {
      const [session] = isUuid(id) ? await sql.query<{ status: SessionStatus }>(LOCK, [id]) : [];
      if (!session) throw noSession(id);
      const refused = refusalOf('terminate', session.status);
      if (refused) throw refused;
      await terminateLocked(sql, id);
      await this.notifier.sendChange(sql, id);
      await this.notifier.sendWork(sql);
    });
  }
}

function noSession(id: string): Error {
  return notFound(`There is no session with the id ${JSON.stringify(id)}`);
}
