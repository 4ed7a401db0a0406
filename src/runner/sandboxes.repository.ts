import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';

const DOOM_IDLE = {
  name: 'sandboxes-doom-idle',
  text: `
    UPDATE sandboxes SET doomed_at = now()
    WHERE idle_since <= now() - make_interval(secs => $1) AND doomed_at IS NULL`,
};
const TAKE_DOOMED = {
  name: 'sandboxes-take-doomed',
  text: `
    UPDATE sandboxes SET reaper = $3, reaper_until = now() + make_interval(secs => $4)
    WHERE session_id IN (
      SELECT session_id FROM sandboxes
      WHERE doomed_at IS NOT NULL AND driver = $1 AND host IS NOT DISTINCT FROM $2
        AND (reaper_until IS NULL OR reaper_until <= now() OR reaper = $3)
      ORDER BY doomed_at LIMIT 100
      FOR UPDATE SKIP LOCKED)
    RETURNING session_id AS id`,
};
const RELEASE = {
  name: 'sandboxes-release-doomed',
  text: 'UPDATE sandboxes SET reaper = NULL, reaper_until = NULL WHERE reaper = $1',
};
const RELEASE_ALL = {
  name: 'sandboxes-release-all-doomed',
  text: 'UPDATE sandboxes SET reaper = NULL, reaper_until = NULL WHERE reaper IS NOT NULL',
};
const FORGET = {
  name: 'sandboxes-forget',
  text: 'DELETE FROM sandboxes WHERE session_id = $1 AND doomed_at IS NOT NULL',
};
const KNOWN = {
  name: 'sandboxes-known',
  text: 'SELECT session_id AS id FROM sandboxes WHERE session_id = ANY ($1)',
};
const RESTING = {
  name: 'sandboxes-resting',
  text: `
    SELECT session_id AS id FROM sandboxes
    WHERE idle_since IS NOT NULL AND doomed_at IS NULL AND driver = $1
      AND host IS NOT DISTINCT FROM $2`,
};
// Only while it rests: a turn that was queued meanwhile finds out by itself.
const DOOM_RESTING = {
  name: 'sandboxes-doom-resting',
  text: `
    UPDATE sandboxes SET doomed_at = now()
    WHERE session_id = ANY ($1) AND idle_since IS NOT NULL AND doomed_at IS NULL`,
};

/** The record of which sandboxes there are meant to be, and on which host. */
@Injectable()
export class SandboxesRepository {
  constructor(private readonly sql: Sql) {}

  /** Gives up the sandboxes that have not been used for so long. */
  async doomIdle(idleSeconds: number): Promise<void> {
    await this.sql.query(DOOM_IDLE, [idleSeconds]);
  }

  /** Takes sandboxes that are to be destroyed, and that nobody else is destroying. */
  async takeDoomed(
    place: { driver: string; host: string | null },
    reaper: string,
    seconds: number,
  ): Promise<string[]> {
    return this.ids(TAKE_DOOMED, [place.driver, place.host, reaper, seconds]);
  }

  /** Lets others destroy what this reaper has taken and not got to. */
  async release(reaper: string): Promise<void> {
    await this.sql.query(RELEASE, [reaper]);
  }

  /** Takes from all reapers what they have taken, for one that knows that they are dead. */
  async releaseAll(): Promise<void> {
    await this.sql.query(RELEASE_ALL, []);
  }

  async forget(sessionId: string): Promise<void> {
    await this.sql.query(FORGET, [sessionId]);
  }

  /** Which of these sandboxes are on record. */
  async known(sessionIds: readonly string[]): Promise<Set<string>> {
    return new Set(await this.ids(KNOWN, [sessionIds]));
  }

  /** The sandboxes of a place that wait for their session's next turn. */
  async resting(place: { driver: string; host: string | null }): Promise<string[]> {
    return this.ids(RESTING, [place.driver, place.host]);
  }

  /** Gives up sandboxes that wait for a next turn. */
  async doomResting(sessionIds: readonly string[]): Promise<void> {
    await this.sql.query(DOOM_RESTING, [sessionIds]);
  }

  private async ids(statement: { name: string; text: string }, values: unknown[]) {
    return (await this.sql.query<{ id: string }>(statement, values)).map(({ id }) => id);
  }
}
