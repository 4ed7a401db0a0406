import type { Doorbell } from '../event-log/doorbell.js';
import type { Sql } from '../database/sql.js';
import { isUuid } from '../common/uuid.js';
import { refusalOf, type SessionStatus } from './session-transitions.js';
import { terminateLocked } from './sessions.repository.js';

const LIST = {
  name: 'operations-sessions',
  text: `
    SELECT s.id, u.name AS user, s.provider, s.status, s.turn_count AS turns, s.created_at AS created,
      s.error
    FROM sessions s JOIN users u ON u.id = s.user_id
    WHERE ($1::text IS NULL OR u.name = $1) AND ($2::text IS NULL OR s.status = $2)
    ORDER BY s.created_at DESC, s.id DESC LIMIT $3`,
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

/** What operators do with sessions, without being their owner. */
export class SessionOperations {
  constructor(
    private readonly sql: Sql,
    private readonly doorbell: Pick<Doorbell, 'ringChange' | 'ringWork'>,
  ) {}

  /** Newest first. */
  async list(filter: {
    user: string | null;
    status: SessionStatus | null;
    limit: number;
  }): Promise<SessionRecord[]> {
    const { user, status, limit } = filter;
    return this.sql.query<SessionRecord & Record<string, unknown>>(LIST, [user, status, limit]);
  }

  /** Ends a session for good. @throws Refusal when its state does not allow it, Error when there is none. */
  async terminate(id: string): Promise<void> {
    await this.sql.transaction(async (sql) => {
      const [session] = isUuid(id) ? await sql.query<{ status: SessionStatus }>(LOCK, [id]) : [];
      if (!session) throw new Error(`There is no session with the id ${JSON.stringify(id)}`);
      const refused = refusalOf('terminate', session.status);
      if (refused) throw refused;
      await terminateLocked(sql, id);
      await this.doorbell.ringChange(sql, id);
      await this.doorbell.ringWork(sql);
    });
  }
}
