import { Injectable } from '@nestjs/common';
import { Sql } from '../../database/sql.js';
import type { ClaimedTurn } from '../../sessions/turn-lease.repository.js';
import { KEEPER, type SandboxPlace } from '../sandboxes.repository.js';

// A sandbox that is kept ready is on record as one that its keeper is about to destroy, any time now: other reapers leave
// it alone for as long as the keeper renews that, and take it down when the keeper has died.
const RECORD = {
  name: 'warm-record',
  text: `
    INSERT INTO sandboxes (session_id, driver, host, doomed_at, reaper, reaper_until)
    VALUES ($1, $2, $3, now(), '${KEEPER}' || $4, now() + make_interval(secs => $5))`,
};
const RENEW = {
  name: 'warm-renew',
  text: `
    UPDATE sandboxes SET reaper_until = now() + make_interval(secs => $3)
    WHERE session_id IN (
      SELECT session_id FROM sandboxes
      WHERE session_id = ANY ($2) AND reaper = '${KEEPER}' || $1
      ORDER BY session_id FOR UPDATE)
    RETURNING session_id AS id`,
};
// Whoever takes the turn or the sandbox away meanwhile has changed the row that is locked here, or waits for it.
const ADOPT = {
  name: 'warm-adopt',
  text: `
    WITH turn AS (
      SELECT session_id FROM turns
      WHERE id = $1 AND fencing = $2 AND status = 'running' FOR UPDATE
    ), warm AS (
      SELECT session_id AS id FROM sandboxes
      WHERE session_id = $3 AND reaper = '${KEEPER}' || $4 AND reaper_until > now() FOR UPDATE
    ), adopted AS (
      UPDATE sandboxes b SET sandbox_id = warm.id FROM turn, warm
      WHERE b.session_id = turn.session_id AND b.sandbox_id IS NULL AND b.doomed_at IS NULL
      RETURNING b.sandbox_id
    )
    DELETE FROM sandboxes WHERE session_id IN (SELECT sandbox_id FROM adopted) RETURNING session_id`,
};
const HAS = {
  name: 'warm-has',
  text: 'SELECT 1 FROM sandboxes WHERE session_id = $1 AND sandbox_id = $2',
};
const RELEASE = {
  name: 'warm-release',
  text: `UPDATE sandboxes SET reaper = NULL, reaper_until = NULL WHERE reaper = '${KEEPER}' || $1`,
};

/** The records of sandboxes that are kept ready, each by one process, and how one becomes a session's. */
@Injectable()
export class WarmSandboxesRepository {
  constructor(private readonly sql: Sql) {}

  /** Before it is made. */
  async record(
    sandboxId: string,
    place: SandboxPlace,
    keeper: string,
    seconds: number,
  ): Promise<void> {
    await this.sql.query(RECORD, [sandboxId, place.driver, place.host, keeper, seconds]);
  }

  /** @returns those of them that are still this keeper's. */
  async renew(
    keeper: string,
    sandboxIds: readonly string[],
    seconds: number,
  ): Promise<Set<string>> {
    const rows = await this.sql.query<{ id: string }>(RENEW, [keeper, sandboxIds, seconds]);
    return new Set(rows.map(({ id }) => id));
  }

  /**
   * Makes a sandbox that is kept ready that of a turn's session, for good. May be repeated.
   * @returns false when the turn or the sandbox is somebody else's by now, and nothing was changed.
   */
  async adopt(
    turn: Pick<ClaimedTurn, 'id' | 'session_id' | 'fencing'>,
    sandboxId: string,
    keeper: string,
  ): Promise<boolean> {
    const rows = await this.sql.query(ADOPT, [turn.id, turn.fencing, sandboxId, keeper]);
    if (rows.length > 0) return true;
    return (await this.sql.query(HAS, [turn.session_id, sandboxId])).length > 0;
  }

  /** Leaves what the keeper still has to whoever reaps. */
  async release(keeper: string): Promise<void> {
    await this.sql.query(RELEASE, [keeper]);
  }
}
