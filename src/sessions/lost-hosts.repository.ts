import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import { Doorbell } from '../event-log/doorbell.js';
import type { EndedTurn } from './ended-turns.js';
import { ENDED_TURN } from './sessions.repository.js';

/** A host with sandboxes on record, and when one of its workers was last heard of: text that changes with each time. */
export interface HostSign {
  driver: string;
  host: string;
  seen: string;
}

const ERROR = 'The host of the sandbox is lost';

const SIGNS = {
  name: 'hosts-signs',
  text: `
    SELECT b.driver, b.host,
      coalesce((SELECT max(w.seen_at) FROM workers w
        WHERE w.driver = b.driver AND w.host = b.host)::text, 'never') AS seen
    FROM (SELECT DISTINCT driver, host FROM sandboxes WHERE host IS NOT NULL) b`,
};
// Held to the end of the transaction, so that a worker that comes back is either seen here or comes too late.
const STILL_SILENT = {
  name: 'hosts-still-silent',
  text: `
    SELECT coalesce(max(seen_at)::text, 'never') AS seen FROM (
      SELECT seen_at FROM workers WHERE driver = $1 AND host = $2 FOR UPDATE) w`,
};
const LOCK_SESSIONS = {
  name: 'hosts-lock-sessions',
  text: `
    SELECT s.id FROM sessions s JOIN sandboxes b ON b.session_id = s.id
    WHERE b.driver = $1 AND b.host = $2
    ORDER BY s.id FOR UPDATE OF s`,
};
const FAIL_SESSIONS = {
  name: 'hosts-fail-sessions',
  text: `
    UPDATE sessions SET status = 'failed', exit_code = NULL, error = $2, updated_at = now()
    WHERE id = ANY ($1) AND status IN ('pending', 'running')`,
};
const FAIL_TURNS = {
  name: 'hosts-fail-turns',
  text: `
    UPDATE turns t SET status = 'failed', error = $2, ended_at = now(), lease_owner = NULL,
      lease_expires_at = NULL, fencing = fencing + 1
    FROM sessions s
    WHERE s.id = t.session_id AND t.id IN (
      SELECT id FROM turns WHERE session_id = ANY ($1) AND status IN ('pending', 'running')
      ORDER BY id FOR UPDATE)
    RETURNING ${ENDED_TURN}`,
};
const FORGET_SANDBOXES = {
  name: 'hosts-forget-sandboxes',
  text: `
    DELETE FROM sandboxes
    WHERE driver = $1 AND host = $2 AND (session_id = ANY ($3) OR doomed_at IS NOT NULL)`,
};

/** Hosts whose sandboxes only they themselves can reach, and what happens to these when a host does not come back. */
@Injectable()
export class LostHostsRepository {
  constructor(
    private readonly sql: Sql,
    private readonly doorbell: Doorbell,
  ) {}

  async signs(): Promise<HostSign[]> {
    return this.sql.query<HostSign & Record<string, unknown>>(SIGNS);
  }

  /**
   * Ends all turns on a host with an error and forgets its sandboxes, unless it was heard of since `sign`. A host that
   * comes back later finds sandboxes that nobody has on record, and removes them.
   * @returns the turns that were ended; `undefined` when the host is there after all.
   */
  async giveUp(sign: HostSign): Promise<EndedTurn[] | undefined> {
    const { driver, host } = sign;
    const ended = await this.sql.transaction(async (sql) => {
      const [now] = await sql.query<{ seen: string }>(STILL_SILENT, [driver, host]);
      if (now?.seen !== sign.seen) return undefined;
      const sessions = await sql.query<{ id: string }>(LOCK_SESSIONS, [driver, host]);
      const ids = sessions.map(({ id }) => id);
      await sql.query(FAIL_SESSIONS, [ids, ERROR]);
      const turns = await sql.query<EndedTurn & Record<string, unknown>>(FAIL_TURNS, [ids, ERROR]);
      await sql.query(FORGET_SANDBOXES, [driver, host, ids]);
      for (const { sessionId } of turns) await this.doorbell.ringChange(sql, sessionId);
      return turns;
    });
    for (const { sessionId } of ended ?? []) this.doorbell.changed(sessionId);
    return ended;
  }
}
