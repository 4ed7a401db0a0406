import { Injectable } from '@nestjs/common';
import { Sql } from '../../database/sql.js';
import type { SandboxPlace } from '../sandbox-host.js';
import { become, IN_USE, mayBecome, type SandboxState, WITHOUT_SESSION } from './sandbox-states.js';

const NAMES = 'session_id AS "sessionId", coalesce(sandbox_id, session_id) AS "sandboxId"';
const HERE = 'driver = $1 AND host IS NOT DISTINCT FROM $2';
/** A condition on the name of a record's sandbox. */
const named = (match: string): string =>
  `(session_id ${match} AND sandbox_id IS NULL OR sandbox_id ${match})`;
/** Sets the owner of the sandbox, a pool or a reaper, and how long others leave it alone. */
const owned = (owner: string, seconds: string): string =>
  `owner = ${owner}, owner_until = now() + make_interval(secs => ${seconds})`;

const MARK_IDLE = {
  name: 'sandboxes-mark-idle',
  text: `
    UPDATE sandboxes SET ${become('deleting')}
    WHERE state = 'idle' AND state_since <= now() - make_interval(secs => $1)`,
};
// Marks the longest idle ones first. Skips a sandbox that a session uses again by now.
const MARK_BEYOND_LIMITS = {
  name: 'sandboxes-mark-beyond-limits',
  text: `
    WITH held AS (
      SELECT b.session_id, coalesce(u.sandboxes_per_user, $1) AS most,
        count(*) OVER (PARTITION BY s.user_id) AS number,
        row_number() OVER (
          PARTITION BY s.user_id ORDER BY b.state = 'active', b.state_since, b.session_id) AS age
      FROM sandboxes b JOIN sessions s ON s.id = b.session_id JOIN users u ON u.id = s.user_id
      WHERE b.${IN_USE} AND coalesce(u.sandboxes_per_user, $1) > 0
    )
    UPDATE sandboxes b SET ${become('deleting')} FROM held
    WHERE b.session_id = held.session_id AND held.age <= held.number - held.most AND b.state = 'idle'
    RETURNING b.session_id`,
};
const TAKE_TO_MAKE_ROOM = {
  name: 'sandboxes-take-to-make-room',
  text: `
    UPDATE sandboxes SET ${become('deleting')}, ${owned('$3', '$4')}
    WHERE state = 'idle' AND session_id = (
      SELECT b.session_id
      FROM sandboxes b JOIN sessions s ON s.id = b.session_id
      JOIN (
        SELECT s.user_id, count(*) AS number
        FROM sandboxes b JOIN sessions s ON s.id = b.session_id
        WHERE ${HERE} AND b.${IN_USE}
        GROUP BY s.user_id) holder ON holder.user_id = s.user_id
      WHERE ${HERE} AND b.state = 'idle'
      ORDER BY holder.number DESC, b.state_since, b.session_id LIMIT 1
      FOR UPDATE OF b SKIP LOCKED)
    RETURNING ${NAMES}`,
};
const TAKE = {
  name: 'sandboxes-take',
  text: `
    UPDATE sandboxes SET ${become('deleting')}, ${owned('$3', '$4')}
    WHERE session_id IN (
      SELECT session_id FROM sandboxes
      WHERE ${HERE} AND ${WITHOUT_SESSION}
        AND (owner_until IS NULL OR owner_until <= now() OR owner = $3)
      ORDER BY state_since LIMIT 100
      FOR UPDATE SKIP LOCKED)
    RETURNING ${NAMES}`,
};
const RELEASE = {
  name: 'sandboxes-release',
  text: `
    UPDATE sandboxes SET ${become('deleting')}, owner = NULL, owner_until = NULL
    WHERE ${WITHOUT_SESSION} AND owner IS NOT NULL AND ($1::text IS NULL OR owner = $1)`,
};
const TO_DELETE = {
  name: 'sandboxes-to-delete',
  text: `
    SELECT ${NAMES} FROM sandboxes
    WHERE ${HERE} AND ${WITHOUT_SESSION} AND (state = 'deleting' OR owner_until <= now())
    ORDER BY state_since`,
};
const IDLE = {
  name: 'sandboxes-idle',
  text: `
    SELECT ${NAMES} FROM sandboxes
    WHERE ${HERE} AND state = 'idle' AND state_since <= now() - make_interval(secs => $3)
    ORDER BY state_since`,
};
// Only while the sandbox is idle: if a turn was queued since, the turn itself finds that the sandbox is missing.
const MARK_THESE_IDLE = {
  name: 'sandboxes-mark-these-idle',
  text: `
    UPDATE sandboxes SET ${become('deleting')} WHERE ${named('= ANY ($1)')} AND state = 'idle'
    RETURNING session_id`,
};
const KNOWN = {
  name: 'sandboxes-known',
  text: `SELECT ${NAMES} FROM sandboxes WHERE ${named('= ANY ($1)')}`,
};
const FORGET = {
  name: 'sandboxes-forget',
  text: `DELETE FROM sandboxes WHERE ${named('= $1')} AND state = 'deleting'`,
};
const LIST = {
  name: 'sandboxes-list',
  text: `
    SELECT coalesce(b.sandbox_id, b.session_id) AS id, s.id AS session, u.name AS user, b.state,
      b.state_since AS since, b.driver, b.host
    FROM sandboxes b LEFT JOIN sessions s ON s.id = b.session_id LEFT JOIN users u ON u.id = s.user_id
    WHERE $1::text IS NULL OR b.state = $1
    ORDER BY b.created_at DESC, b.session_id LIMIT $2`,
};
const RECORD = {
  name: 'sandboxes-record',
  text: `
    INSERT INTO sandboxes (session_id, driver, host, state, owner, owner_until)
    VALUES ($3, $1, $2, $4, $5, now() + make_interval(secs => $6))`,
};
const MARK_READY = {
  name: 'sandboxes-mark-ready',
  text: `
    UPDATE sandboxes SET ${become('ready')}
    WHERE session_id = $1 AND owner = $2 AND ${mayBecome('ready')} RETURNING session_id`,
};
const DISCARD = {
  name: 'sandboxes-discard',
  text: `
    UPDATE sandboxes SET ${become('deleting')}
    WHERE session_id = $1 AND owner = $2 AND ${WITHOUT_SESSION} RETURNING session_id`,
};
const RENEW = {
  name: 'sandboxes-renew',
  text: `
    UPDATE sandboxes SET owner_until = now() + make_interval(secs => $3)
    WHERE session_id IN (
      SELECT session_id FROM sandboxes WHERE session_id = ANY ($2) AND owner = $1
      ORDER BY session_id FOR UPDATE)
    RETURNING session_id AS id`,
};
// The claim of the turn has created the session's record. It gets the sandbox's id here, and the pool's record is
// deleted. A process that takes the turn or the sandbox away at the same time has changed the rows that are locked
// here, or waits for them.
const ADOPT = {
  name: 'sandboxes-adopt',
  text: `
    WITH turn AS (
      SELECT session_id FROM turns
      WHERE id = $1 AND fencing = $2 AND status = 'running' FOR UPDATE
    ), warm AS (
      SELECT session_id AS id FROM sandboxes
      WHERE session_id = $3 AND state = 'ready' AND owner = $4 AND owner_until > now() FOR UPDATE
    ), adopted AS (
      UPDATE sandboxes b SET sandbox_id = warm.id FROM turn, warm
      WHERE b.session_id = turn.session_id AND b.state = 'active' AND b.sandbox_id IS NULL
      RETURNING b.sandbox_id
    )
    DELETE FROM sandboxes WHERE session_id IN (SELECT sandbox_id FROM adopted) RETURNING session_id`,
};
const HAS_ADOPTED = {
  name: 'sandboxes-has-adopted',
  text: 'SELECT 1 FROM sandboxes WHERE session_id = $1 AND sandbox_id = $2',
};

/** A sandbox on record: its session, and its own id, which differs if the sandbox was adopted. */
export interface OnRecord {
  sessionId: string;
  sandboxId: string;
}

/** A process that owns a sandbox for a time, as its pool or its reaper. */
export interface Owner {
  name: string;
  /** How long others leave its sandboxes alone after it has died. */
  seconds: number;
}

/** A turn under one claim. */
export interface TurnClaim {
  id: string;
  session_id: string;
  fencing: number;
}

/** A sandbox as operators see it. */
export interface ListedSandbox {
  id: string;
  /** `null` if the sandbox belongs to no session. */
  session: string | null;
  user: string | null;
  state: SandboxState;
  since: string;
  driver: string;
  host: string | null;
}

/** The records of sandboxes: which sandboxes should exist, on which host, and in which state. */
@Injectable()
export class SandboxesRepository {
  constructor(private readonly sql: Sql) {}

  /** Marks sandboxes for deletion that have been idle for this long. */
  async markIdle(seconds: number): Promise<void> {
    await this.sql.query(MARK_IDLE, [seconds]);
  }

  /**
   * Marks the longest idle sandboxes of users who have more than they may keep for deletion.
   * @param perUser for users without a limit of their own; 0: no limit. @returns the sessions
   */
  async markBeyondLimits(perUser: number): Promise<string[]> {
    const rows = await this.sql.query<{ session_id: string }>(MARK_BEYOND_LIMITS, [perUser]);
    return rows.map(({ session_id: id }) => id);
  }

  /** Marks those of these sandboxes for deletion that are idle. @returns how many */
  async markTheseIdle(sandboxIds: readonly string[]): Promise<number> {
    return (await this.sql.query(MARK_THESE_IDLE, [sandboxIds])).length;
  }

  /**
   * Marks the longest idle sandbox in a place, of the user who has the most there, for deletion by this owner.
   * @returns `undefined` if none is idle
   */
  async takeToMakeRoom(place: SandboxPlace, owner: Owner): Promise<OnRecord | undefined> {
    return (await this.found(TAKE_TO_MAKE_ROOM, place, owner.name, owner.seconds))[0];
  }

  /** Takes sandboxes that are to be deleted, or whose pool has died, and that no other process is deleting. */
  async take(place: SandboxPlace, owner: Owner): Promise<OnRecord[]> {
    return this.found(TAKE, place, owner.name, owner.seconds);
  }

  /**
   * Leaves an owner's sandboxes to any reaper. @param owner default: all owners, for a process that knows that they are
   * dead
   */
  async release(owner?: string): Promise<void> {
    await this.sql.query(RELEASE, [owner ?? null]);
  }

  /** The sandboxes of a place that are to be deleted, including those that a reaper is deleting. */
  async toDelete(place: SandboxPlace): Promise<OnRecord[]> {
    return this.found(TO_DELETE, place);
  }

  /** The sandboxes of a place that have been idle for this long. */
  async idle(place: SandboxPlace, seconds = 0): Promise<OnRecord[]> {
    return this.found(IDLE, place, seconds);
  }

  /** Which of these sandboxes are on record. */
  async known(sandboxIds: readonly string[]): Promise<Set<string>> {
    const rows = await this.sql.query<OnRecord & Record<string, unknown>>(KNOWN, [sandboxIds]);
    return new Set(rows.map(({ sandboxId }) => sandboxId));
  }

  /** Removes the record of a sandbox that was marked for deletion and is gone. */
  async forget(sandboxId: string): Promise<void> {
    await this.sql.query(FORGET, [sandboxId]);
  }

  /** The newest sandboxes, of all places. */
  async list(state: SandboxState | undefined, limit: number): Promise<ListedSandbox[]> {
    const values = [state ?? null, limit];
    return this.sql.query<ListedSandbox & Record<string, unknown>>(LIST, values);
  }

  /**
   * Records a sandbox that belongs to no session, before it is made. Others leave it alone while its owner renews the
   * record.
   * @param state `deleting` for a short-lived sandbox
   */
  async record(
    sandboxId: string,
    state: 'warming' | 'deleting',
    place: SandboxPlace,
    owner: Owner,
  ): Promise<void> {
    const values = [place.driver, place.host, sandboxId, state, owner.name, owner.seconds];
    await this.sql.query(RECORD, values);
  }

  /** @returns false if the sandbox is no longer this owner's. */
  async markReady(sandboxId: string, owner: string): Promise<boolean> {
    return (await this.sql.query(MARK_READY, [sandboxId, owner])).length > 0;
  }

  /** Marks an owner's sandbox for deletion by the same owner. @returns false if it is no longer this owner's. */
  async discard(sandboxId: string, owner: string): Promise<boolean> {
    return (await this.sql.query(DISCARD, [sandboxId, owner])).length > 0;
  }

  /** @returns the sandboxes that still belong to this owner. */
  async renew(sandboxIds: readonly string[], owner: Owner): Promise<Set<string>> {
    const values = [owner.name, sandboxIds, owner.seconds];
    const rows = await this.sql.query<{ id: string }>(RENEW, values);
    return new Set(rows.map(({ id }) => id));
  }

  /**
   * Gives a ready sandbox to a turn's session, for good. May be repeated.
   * @returns false if the turn or the sandbox belongs to another process by now. Then nothing was changed.
   */
  async adopt(turn: TurnClaim, sandboxId: string, owner: string): Promise<boolean> {
    const rows = await this.sql.query(ADOPT, [turn.id, turn.fencing, sandboxId, owner]);
    if (rows.length > 0) return true;
    return (await this.sql.query(HAS_ADOPTED, [turn.session_id, sandboxId])).length > 0;
  }

  private async found(
    statement: { name: string; text: string },
    place: SandboxPlace,
    ...values: readonly unknown[]
  ): Promise<OnRecord[]> {
    const all = [place.driver, place.host, ...values];
    return this.sql.query<OnRecord & Record<string, unknown>>(statement, all);
  }
}
