import type { SqlExecutor } from '../../database/sql.js';
import type { SandboxPlace } from '../sandbox-host.js';
import { become, IN_USE, mayBecome, WITHOUT_SESSION } from './sandbox-states.js';

// How sessions and turns change the records of their sandboxes. Each function runs in the caller's transaction, or is a
// part of its statement, so that a session and its sandbox change together.

/** A part of a statement, a condition on the record `b`: its session may continue to use the sandbox. */
export const USABLE = `b.${IN_USE}`;

/**
 * A part of a statement: records that sessions are about to have a sandbox, before there is one. Leaves existing records.
 * @param sessions a relation with the column `session_id`
 * @param place parameters of the statement
 */
export const recordSandboxes = (
  sessions: string,
  place: { driver: string; host: string },
): string => `
  INSERT INTO sandboxes (session_id, driver, host, state)
  SELECT session_id, ${place.driver}, ${place.host}, 'active' FROM ${sessions}
  ON CONFLICT (session_id) DO NOTHING`;

const FIND = {
  name: 'sandboxes-place',
  text: `
    SELECT coalesce(sandbox_id, session_id) AS id, driver, host
    FROM sandboxes WHERE session_id = $1 AND ${IN_USE}`,
};
const WAKE = {
  name: 'sandboxes-wake',
  text: `
    UPDATE sandboxes SET ${become('active')}
    WHERE session_id = $1 AND ${IN_USE} RETURNING session_id`,
};
const REST = {
  name: 'sandboxes-rest',
  text: `UPDATE sandboxes SET ${become('idle')} WHERE session_id = $1 AND ${mayBecome('idle')}`,
};
const MARK = {
  name: 'sandboxes-mark',
  text: `
    UPDATE sandboxes SET ${become('deleting')}
    WHERE session_id = ANY ($1) AND ${mayBecome('deleting')}`,
};
const MARK_ENDED = {
  name: 'sandboxes-of-ended-sessions',
  text: `
    UPDATE sandboxes b SET ${become('deleting')} FROM sessions s
    WHERE s.id = b.session_id AND s.status IN ('failed', 'terminated') AND ${mayBecome('deleting')}`,
};
const FORGET_HOST = {
  name: 'sandboxes-forget-host',
  text: `
    DELETE FROM sandboxes
    WHERE driver = $1 AND host = $2 AND (session_id = ANY ($3) OR ${WITHOUT_SESSION})`,
};
const FORGET_ALL = { name: 'sandboxes-forget-all', text: 'DELETE FROM sandboxes' };

/** Where a session's sandbox is. */
export interface SessionSandbox extends SandboxPlace {
  id: string;
}

/** @returns the session's sandbox, unless it is marked for deletion. */
export async function findSandbox(
  sql: SqlExecutor,
  sessionId: string,
): Promise<SessionSandbox | undefined> {
  return (await sql.query<SessionSandbox & Record<string, unknown>>(FIND, [sessionId]))[0];
}

/** Marks the sandbox as active, for a further turn. @returns false if the sandbox is marked for deletion. */
export async function wakeSandbox(sql: SqlExecutor, sessionId: string): Promise<boolean> {
  return (await sql.query(WAKE, [sessionId])).length > 0;
}

/** Marks the sandbox as idle, after a turn. */
export async function restSandbox(sql: SqlExecutor, sessionId: string): Promise<void> {
  await sql.query(REST, [sessionId]);
}

/** Marks the sandboxes of these sessions for deletion. A reaper destroys them. */
export async function markSandboxes(
  sql: SqlExecutor,
  sessionIds: readonly string[],
): Promise<void> {
  await sql.query(MARK, [sessionIds]);
}

/** Marks the sandboxes of all failed and terminated sessions for deletion. */
export async function markSandboxesOfEndedSessions(sql: SqlExecutor): Promise<void> {
  await sql.query(MARK_ENDED);
}

/** Removes the records of a lost host: those of the given sessions, and those without a session. */
export async function forgetSandboxesOfHost(
  sql: SqlExecutor,
  place: SandboxPlace,
  sessionIds: readonly string[],
): Promise<void> {
  await sql.query(FORGET_HOST, [place.driver, place.host, sessionIds]);
}

/** Removes all records, for a database whose sandboxes belong to another installation. */
export async function forgetAllSandboxes(sql: SqlExecutor): Promise<void> {
  await sql.query(FORGET_ALL);
}
