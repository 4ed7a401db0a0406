import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';

/** Begins what a record calls its reaper where that keeps the sandbox ready, and takes it down only at its end. */
export const KEEPER = 'warm ';

const NAMES = 'session_id AS "sessionId", coalesce(sandbox_id, session_id) AS "sandboxId"';
/** A condition on what a record's sandbox is called. */
const named = (match: string): string =>
  `(session_id ${match} AND sandbox_id IS NULL OR sandbox_id ${match})`;

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
    RETURNING ${NAMES}`,
};
const DOOMED = {
  name: 'sandboxes-doomed',
  text: `
    SELECT ${NAMES} FROM sandboxes
    WHERE doomed_at IS NOT NULL AND driver = $1 AND host IS NOT DISTINCT FROM $2
      AND (reaper IS NULL OR reaper NOT LIKE '${KEEPER}%' OR reaper_until <= now())
    ORDER BY doomed_at`,
};
const IDLE = {
  name: 'sandboxes-idle',
  text: `
    SELECT ${NAMES} FROM sandboxes
    WHERE idle_since <= now() - make_interval(secs => $3) AND doomed_at IS NULL
      AND driver = $1 AND host IS NOT DISTINCT FROM $2
    ORDER BY idle_since`,
};
const RECORD_PROBE = {
  name: 'sandboxes-record-probe',
  text: `
    INSERT INTO sandboxes (session_id, driver, host, doomed_at, reaper, reaper_until)
    VALUES ($1, $2, $3, now(), 'probe', now() + make_interval(secs => $4))`,
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
  text: `DELETE FROM sandboxes WHERE ${named('= $1')} AND doomed_at IS NOT NULL`,
};
const KNOWN = {
  name: 'sandboxes-known',
  text: `SELECT ${NAMES} FROM sandboxes WHERE ${named('= ANY ($1)')}`,
};
const RESTING = {
  name: 'sandboxes-resting',
  text: `
    SELECT ${NAMES} FROM sandboxes
    WHERE idle_since IS NOT NULL AND doomed_at IS NULL AND driver = $1
      AND host IS NOT DISTINCT FROM $2`,
};
// Only while it rests: a turn that was queued meanwhile finds out by itself.
const DOOM_RESTING = {
  name: 'sandboxes-doom-resting',
  text: `
    UPDATE sandboxes SET doomed_at = now()
    WHERE ${named('= ANY ($1)')} AND idle_since IS NOT NULL AND doomed_at IS NULL`,
};

/** Where sandboxes are, as their records say it. */
export interface SandboxPlace {
  driver: string;
  host: string | null;
}

/** A sandbox on record: whose it is, and its name, which differs where it was adopted. */
export interface OnRecord {
  sessionId: string;
  sandboxId: string;
}

/** The record of which sandboxes there are meant to be, and on which host. */
@Injectable()
export class SandboxesRepository {
  constructor(private readonly sql: Sql) {}

  /** Gives up the sandboxes that have not been used for so long. */
  async doomIdle(idleSeconds: number): Promise<void> {
    await this.sql.query(DOOM_IDLE, [idleSeconds]);
  }

  /** The sandboxes of a place that have not been used for so long, and are not given up yet. */
  async idle(place: SandboxPlace, idleSeconds: number): Promise<OnRecord[]> {
    return this.found(IDLE, [place.driver, place.host, idleSeconds]);
  }

  /** Takes sandboxes that are to be destroyed, and that nobody else is destroying. */
  async takeDoomed(place: SandboxPlace, reaper: string, seconds: number): Promise<OnRecord[]> {
    return this.found(TAKE_DOOMED, [place.driver, place.host, reaper, seconds]);
  }

  /** The sandboxes of a place that are to be destroyed, whoever is at it. Not those that are kept ready. */
  async doomed(place: SandboxPlace): Promise<OnRecord[]> {
    return this.found(DOOMED, [place.driver, place.host]);
  }

  /** Lets others destroy what this reaper has taken and not got to. */
  async release(reaper: string): Promise<void> {
    await this.sql.query(RELEASE, [reaper]);
  }

  /** Takes from all reapers what they have taken, for one that knows that they are dead. */
  async releaseAll(): Promise<void> {
    await this.sql.query(RELEASE_ALL, []);
  }

  /**
   * Puts a sandbox on record that belongs to no session: reapers leave it alone for so long, and then destroy it, should
   * whoever makes it die before.
   */
  async recordProbe(sandboxId: string, place: SandboxPlace, seconds: number): Promise<void> {
    await this.sql.query(RECORD_PROBE, [sandboxId, place.driver, place.host, seconds]);
  }

  async forget(sandboxId: string): Promise<void> {
    await this.sql.query(FORGET, [sandboxId]);
  }

  /** Which of these sandboxes are on record. */
  async known(sandboxIds: readonly string[]): Promise<Set<string>> {
    return new Set((await this.found(KNOWN, [sandboxIds])).map(({ sandboxId }) => sandboxId));
  }

  /** The sandboxes of a place that wait for their session's next turn. */
  async resting(place: SandboxPlace): Promise<OnRecord[]> {
    return this.found(RESTING, [place.driver, place.host]);
  }

  /** Gives up sandboxes that wait for a next turn. */
  async doomResting(sandboxIds: readonly string[]): Promise<void> {
    await this.sql.query(DOOM_RESTING, [sandboxIds]);
  }

  private async found(statement: { name: string; text: string }, values: unknown[]) {
    return this.sql.query<OnRecord & Record<string, unknown>>(statement, values);
  }
}
