import type { SqlExecutor } from '../database/sql.js';
import { markSandboxes } from '../sandboxes/lifecycle/session-sandboxes.js';
import type { EndedTurn } from './ended-turns.js';
import { allowedFrom } from './session-transitions.js';

/** The columns of {@link EndedTurn}, from the turn `t` and its session `s`. */
export const ENDED_TURN = `
  t.id, s.id AS "sessionId", t.turn_number AS "turnNumber", s.provider, t.traceparent,
  (extract(epoch FROM now() - t.created_at) * 1000)::float8 AS "ageMs"`;
const TERMINATE = {
  name: 'sessions-terminate',
  text: `
    UPDATE sessions SET status = 'terminated', updated_at = now()
    WHERE id = $1 AND status = ANY ($2) RETURNING id`,
};
const TERMINATE_TURN = {
  name: 'turns-terminate',
  text: `
    UPDATE turns t SET status = 'terminated', ended_at = now(), lease_owner = NULL,
      lease_expires_at = NULL, fencing = fencing + 1
    FROM sessions s
    WHERE s.id = $1 AND t.session_id = $1 AND t.status IN ('pending', 'running')
    RETURNING ${ENDED_TURN}`,
};
/**
 * Terminates a locked session and marks its sandbox for deletion. Does nothing if the session's state does not allow
 * it.
 * @returns the turn that was ended with it, if it had a pending or running one.
 */
export async function terminateLocked(sql: SqlExecutor, id: string): Promise<EndedTurn[]> {
  const [row] = await sql.query(TERMINATE, [id, allowedFrom('terminate')]);
  if (!row) return [];
  const turns = await sql.query<EndedTurn & Record<string, unknown>>(TERMINATE_TURN, [id]);
  await markSandboxes(sql, [id]);
  return turns;
}
