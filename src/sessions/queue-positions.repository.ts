import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import { ALIVE_SECONDS } from './workers.repository.js';

/** Turns further back than this are not counted, so that the statement reads a bounded number of rows. */
const COUNTED = 1_000;

// The order of claims, approximately: users take turns, and each user's turns wait in order. A claim also counts the
// slots that users hold already, and considers only the turns whose sandbox its worker can reach.
const WAITING = {
  name: 'turns-queue-positions',
  timeoutMs: 5_000,
  text: `
    WITH alive AS MATERIALIZED (
      SELECT driver, host, slots FROM workers
      WHERE seen_at > now() - make_interval(secs => $2) AND slots IS DISTINCT FROM 0
    ), requested AS MATERIALIZED (
      SELECT t.id, t.session_id, t.status, b.driver, b.host
      FROM unnest($1::uuid[]) AS r (session_id)
      JOIN sessions s ON s.id = r.session_id
      JOIN turns t ON t.session_id = s.id AND t.turn_number = s.current_turn
      LEFT JOIN sandboxes b ON b.session_id = s.id
      WHERE t.status = 'pending' OR t.status = 'running' AND t.lease_expires_at <= now()
    ), oldest AS MATERIALIZED (
      SELECT id, session_id, created_at FROM turns
      WHERE status = 'pending' ORDER BY created_at LIMIT ${COUNTED}
    ), placed AS MATERIALIZED (
      SELECT id, row_number() OVER (ORDER BY nth, created_at) AS place FROM (
        SELECT o.id, o.created_at,
          row_number() OVER (PARTITION BY s.user_id ORDER BY o.created_at) AS nth
        FROM oldest o JOIN sessions s ON s.id = o.session_id) ranked
    )
    SELECT r.session_id AS "sessionId", r.status = 'running' AS begun, p.place::int,
      (SELECT count(*)::int FROM alive) AS workers,
      (SELECT count(*)::int FROM alive w
       WHERE r.driver IS NULL OR w.driver = r.driver AND w.host IS NOT DISTINCT FROM r.host)
        AS reachable,
      (SELECT CASE WHEN bool_and(slots IS NOT NULL) THEN sum(slots)::int END FROM alive) AS slots,
      (SELECT count(*)::int FROM turns WHERE status = 'running' AND lease_expires_at > now())
        AS taken
    FROM requested r LEFT JOIN placed p ON p.id = r.id`,
};

/** A turn that no worker has, and what it waits for. */
export interface WaitingTurn {
  sessionId: string;
  /** Did a worker have it before? */
  begun: boolean;
  /** Its place in the queue from 1 on; `null` if it is further back than turns are counted. */
  place: number | null;
  /** Workers that are alive. */
  workers: number;
  /** Those of them that can reach the session's sandbox. */
  reachable: number;
  /** How many turns the workers can run at a time; `null` if that is unknown. */
  slots: number | null;
  /** How many turns they are running. */
  taken: number;
}

/** Reads what the turns that no worker has are waiting for. */
@Injectable()
export class QueuePositions {
  constructor(private readonly sql: Sql) {}

  /** @returns one sentence for people for each of these sessions whose latest turn no worker has. */
  async describeUnscoped(sessionIds: readonly string[]): Promise<ReadonlyMap<string, string>> {
    const rows = await this.sql.query<WaitingTurn & Record<string, unknown>>(WAITING, [
      sessionIds,
      ALIVE_SECONDS,
    ]);
    return new Map(rows.map((row) => [row.sessionId, describeWait(row)]));
  }
}

/** Says what a turn waits for, in one sentence for people. */
export function describeWait(turn: WaitingTurn): string {
  const { begun, place, workers, reachable, slots, taken } = turn;
  if (workers === 0) return 'Waiting for a worker: none is running';
  if (reachable === 0) {
    return "Waiting for the worker that has the session's sandbox: it is not running";
  }
  if (begun) return 'Waiting for a worker to continue the turn: its last worker has stopped';
  const position =
    place === null ? `behind ${COUNTED} others in the queue` : `number ${place} in the queue`;
  if (slots === null || taken < slots) return `Waiting for a worker: ${position}`;
  return `Waiting for a free slot (${slots} of ${slots} in use): ${position}`;
}
