import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import { Notifier } from '../event-log/log-notifications.js';
import type { EndedTurn } from '../sessions/ended-turns.js';
import { markSandboxesOfEndedSessions } from '../sandboxes/lifecycle/session-sandboxes.js';
import { ENDED_TURN } from '../sessions/session-termination.js';

// Without a fencing token, ends the turn only if no worker holds its lease.
const FAIL = {
  name: 'turns-fail',
  text: `
    WITH turn AS (
      SELECT t.id, t.session_id FROM turns t JOIN sessions s ON s.id = t.session_id
      WHERE t.id = $1 AND CASE WHEN $3::bigint IS NULL
        THEN t.status = 'pending' OR t.status = 'running' AND t.lease_expires_at <= now()
        ELSE t.status = 'running' AND t.fencing = $3 END
      FOR UPDATE OF s, t
    ), session AS (
      UPDATE sessions s SET status = 'failed', exit_code = NULL, error = $2, updated_at = now()
      FROM turn WHERE s.id = turn.session_id AND s.status IN ('pending', 'running')
    )
    UPDATE turns t SET status = 'failed', error = $2, ended_at = now(), lease_owner = NULL,
      lease_expires_at = NULL, fencing = t.fencing + 1
    FROM turn, sessions s WHERE t.id = turn.id AND s.id = t.session_id
    RETURNING ${ENDED_TURN}`,
};

// Turns that the database records as ended. A missing turn does not count: an older backup may have been restored.
const HAVE_ENDED = {
  name: 'turns-have-ended',
  text: `
    SELECT id FROM turns
    WHERE id = ANY ($1) AND status IN ('completed', 'failed', 'terminated')`,
};

/** Ends turns that cannot be started, or cannot be ended in the usual way. */
@Injectable()
export class TurnFailures {
  constructor(
    private readonly sql: Sql,
    private readonly notifier: Notifier,
  ) {}

  /**
   * Marks a turn and its session as failed and writes nothing else, for a turn whose usual end the database rejects.
   * Its sandbox is marked for deletion by {@link markSandboxes}.
   * @param error for clients; plain ASCII, so that it can always be stored.
   * @param fencing the fencing token of the claim. Without it, the turn ends only if no worker holds its lease.
   * @returns the turn, or `undefined` if it belongs to another worker.
   */
  async fail(turnId: string, error: string, fencing?: number): Promise<EndedTurn | undefined> {
    const ended = await this.sql.transaction(async (sql) => {
      const [turn] = await sql.query<EndedTurn & Record<string, unknown>>(FAIL, [
        turnId,
        error,
        fencing ?? null,
      ]);
      if (turn) {
        await this.notifier.sendChange(sql, turn.sessionId);
        await this.notifier.sendWork(sql);
      }
      return turn;
    });
    if (ended) this.notifier.changed(ended.sessionId);
    this.notifier.workAvailable();
    return ended;
  }

  /** Marks the sandboxes of ended sessions for deletion, unless they are marked already. */
  async markSandboxes(): Promise<void> {
    await markSandboxesOfEndedSessions(this.sql);
  }

  /** @returns the ids of those turns that exist and have ended. */
  async haveEnded(turnIds: readonly string[]): Promise<string[]> {
    return (await this.sql.query<{ id: string }>(HAVE_ENDED, [turnIds])).map(({ id }) => id);
  }
}
