import { Injectable } from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import { Sql, type SqlExecutor } from '../database/sql.js';
import type { LogRow } from './log-row.js';

const READ_AFTER = {
  name: 'event-log-read-after',
  text: `
    SELECT id, turn, kind, data FROM (
      SELECT id, turn, kind, data, sum(octet_length(data)) OVER (ORDER BY id) - octet_length(data) AS before
      FROM (
        SELECT id, turn, kind, data FROM event_log
        WHERE session_id = $1 AND id > $2 AND created_at >= now() - make_interval(days => $3)
        ORDER BY id LIMIT $4) page
      ) measured
    WHERE before < $5 ORDER BY id`,
};
const DELETE_SESSION = {
  name: 'event-log-delete-session',
  text: 'DELETE FROM event_log WHERE session_id = $1',
};

/** Reads the log. Rows past retention are invisible even while their partition is still there. */
@Injectable()
export class EventLogRepository {
  constructor(
    private readonly sql: Sql,
    private readonly config: AppConfig,
  ) {}

  /**
   * The next rows that hold events after a cursor, oldest first; the first one may hold events before it, too. Whoever
   * asks has made sure that the session is theirs.
   * @param limit as many rows as this at most, and no more once they hold so many bytes.
   */
  async readAfterUnscoped(
    sessionId: string,
    cursor: number,
    limit: { rows: number; bytes: number },
  ): Promise<LogRow[]> {
    return this.sql.query<LogRow>(READ_AFTER, [
      sessionId,
      cursor,
      this.config.logRetentionDays,
      limit.rows,
      limit.bytes,
    ]);
  }

  /** Part of deleting a session; runs in that transaction. */
  async deleteSessionUnscoped(sql: SqlExecutor, sessionId: string): Promise<void> {
    await sql.query(DELETE_SESSION, [sessionId]);
  }
}
