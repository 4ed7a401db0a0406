import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import { Notifier } from '../event-log/log-notifications.js';
import type { EndedTurn } from '../sessions/ended-turns.js';
import { forgetSandboxesOfHost, markSandboxes } from '../sandboxes/lifecycle/session-sandboxes.js';
import { ENDED_TURN } from '../sessions/session-termination.js';

/** The last heartbeat of a host with sandboxes on record, or of a driver whose sandboxes are not bound to a host. */
export interface HostHeartbeat {
  driver: string;
  /** `null` if each worker of the driver can reach all of its sandboxes. */
  host: string | null;
  seen: string;
}

const ERROR = 'The host of the sandbox is lost';
const unserved = (driver: string): string =>
  `No worker serves the sandbox of this session any more: it was made by the driver ${driver}`;

// A driver without hosts counts as lost only while workers of another driver are alive: then the driver was changed. If
// there are no workers at all, the service is just not running.
const HEARTBEATS = {
  name: 'hosts-heartbeats',
  text: `
    SELECT b.driver, b.host,
      coalesce((SELECT max(w.seen_at) FROM workers w
        WHERE w.driver = b.driver AND w.host IS NOT DISTINCT FROM b.host)::text, 'never') AS seen
    FROM (SELECT DISTINCT driver, host FROM sandboxes) b
    WHERE host IS NOT NULL OR EXISTS (
      SELECT FROM workers w
      WHERE w.driver <> b.driver AND w.seen_at > now() - make_interval(secs => $1))`,
};
// The rows stay locked until the end of the transaction, so a worker that comes back either is seen here or waits.
const STILL_SILENT = {
  name: 'hosts-still-silent',
  text: `
    SELECT coalesce(max(seen_at)::text, 'never') AS seen FROM (
      SELECT seen_at FROM workers
      WHERE driver = $1 AND host IS NOT DISTINCT FROM $2 FOR UPDATE) w`,
};
const LOCK_SESSIONS = {
  name: 'hosts-lock-sessions',
  text: `
    SELECT s.id FROM sessions s JOIN sandboxes b ON b.session_id = s.id
    WHERE b.driver = $1 AND b.host IS NOT DISTINCT FROM $2
      AND (b.host IS NOT NULL OR s.status IN ('pending', 'running'))
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

/** Finds hosts that send no heartbeats, and ends the turns whose sandboxes only such a host can reach. */
@Injectable()
export class LostHostsRepository {
  constructor(
    private readonly sql: Sql,
    private readonly notifier: Notifier,
  ) {}

  /** @param aliveSeconds how long after its last heartbeat a worker counts as alive. */
  async heartbeats(aliveSeconds: number): Promise<HostHeartbeat[]> {
    return this.sql.query<HostHeartbeat & Record<string, unknown>>(HEARTBEATS, [aliveSeconds]);
  }

  /**
   * Ends all turns on a host with an error and forgets its sandboxes, unless the host has sent a heartbeat since
   * `heartbeat`. A host that comes back later removes these sandboxes, because they have no record. For a driver without
   * hosts, only pending and running sessions end: the others can continue when the driver is used again.
   * @returns the turns that were ended; `undefined` if the host is alive after all.
   */
  async giveUp(heartbeat: HostHeartbeat): Promise<EndedTurn[] | undefined> {
    const { driver, host } = heartbeat;
    const ended = await this.sql.transaction(async (sql) => {
      const [now] = await sql.query<{ seen: string }>(STILL_SILENT, [driver, host]);
      if (now?.seen !== heartbeat.seen) return undefined;
      const sessions = await sql.query<{ id: string }>(LOCK_SESSIONS, [driver, host]);
      const ids = sessions.map(({ id }) => id);
      const error = host === null ? unserved(driver) : ERROR;
      await sql.query(FAIL_SESSIONS, [ids, error]);
      const turns = await sql.query<EndedTurn & Record<string, unknown>>(FAIL_TURNS, [ids, error]);
      // Sandboxes of a driver without hosts still exist. A worker of that driver destroys them if it ever comes back.
      if (host === null) await markSandboxes(sql, ids);
      else await forgetSandboxesOfHost(sql, { driver, host }, ids);
      for (const { sessionId } of turns) await this.notifier.sendChange(sql, sessionId);
      return turns;
    });
    for (const { sessionId } of ended ?? []) this.notifier.changed(sessionId);
    return ended;
  }
}
