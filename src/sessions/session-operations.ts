import { notFound } from '../common/errors.js';
import { isUuid } from '../common/uuid.js';
import type { Sql } from '../database/sql.js';
import type { Doorbell } from '../event-log/doorbell.js';
import { refusalOf, type SessionStatus } from './session-transitions.js';
import { terminateLocked } from './sessions.repository.js';

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
      b.host AS sandbox_host, b.idle_since AS sandbox_idle_since, b.doomed_at AS sandbox_given_up
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
const LOCK = {
  name: 'operations-lock',
  text: 'SELECT status FROM sessions WHERE id = $1 FOR UPDATE',
};

/** A session as operators see it, whoever owns it. */
export interface SessionRecord {
  id: string;
  user: string;
  provider: string;
  status: SessionStatus;
  turns: number;
  created: string;
  error: string | null;
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
  /** `null`: there is none on record. */
  sandbox_driver: string | null;
  sandbox_host: string | null;
  /** The sandbox's own name, where it was made before the session and so is not named for it. */
  sandbox_adopted: string | null;
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
  /** Who holds its lease. */
  worker: string | null;
  /** From the request until a worker took it. */
  waited_ms: number | null;
  /** Provisioning and runtime; up to now while it runs. */
  ran_ms: number | null;
}

/** What operators do with sessions, without being their owner. */
export class SessionOperations {
  constructor(
    private readonly sql: Sql,
    private readonly doorbell: Pick<Doorbell, 'ringChange' | 'ringWork'>,
  ) {}

  /** Newest first; a filter that is left out lets all pass. */
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

  /** @throws Refusal when there is no such session. */
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

  /** Ends a session for good. @throws Refusal when there is none, or its state does not allow it. */
  async terminate(id: string): Promise<void> {
    await this.sql.transaction(async (sql) => {
      const [session] = isUuid(id) ? await sql.query<{ status: SessionStatus }>(LOCK, [id]) : [];
      if (!session) throw noSession(id);
      const refused = refusalOf('terminate', session.status);
      if (refused) throw refused;
      await terminateLocked(sql, id);
      await this.doorbell.ringChange(sql, id);
      await this.doorbell.ringWork(sql);
    });
  }
}

function noSession(id: string): Error {
  return notFound(`There is no session with the id ${JSON.stringify(id)}`);
}
