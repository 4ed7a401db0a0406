import { Injectable } from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import { Sql } from '../database/sql.js';
import { Doorbell } from '../event-log/doorbell.js';

// Locks by rising id, as the commit of output does. A notice counts as activity, so that the next one comes after as long a silence again.
const NOTICE = {
  name: 'turns-stale',
  text: `
    UPDATE turns SET stale_count = stale_count + 1, active_at = clock_timestamp()
    WHERE id IN (
      SELECT id FROM turns
      WHERE status = 'running' AND active_at <= now() - make_interval(secs => $1)
      ORDER BY id FOR UPDATE)
    RETURNING session_id AS id`,
};

/** Running turns that have been silent for too long. The run itself is left alone. */
@Injectable()
export class StaleTurns {
  constructor(
    private readonly sql: Sql,
    private readonly doorbell: Doorbell,
    private readonly config: AppConfig,
  ) {}

  /** Gives each of them one notice, and tells the streams. */
  async publish(): Promise<void> {
    const sessions = await this.sql.transaction(async (sql) => {
      const rows = await sql.query<{ id: string }>(NOTICE, [this.config.staleAfterSeconds]);
      for (const { id } of rows) await this.doorbell.ringChange(sql, id);
      return rows;
    });
    for (const { id } of sessions) this.doorbell.changed(id);
  }
}
