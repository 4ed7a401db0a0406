import { Injectable } from '@nestjs/common';
import { isUuid } from '../common/uuid.js';
import { Sql } from '../database/sql.js';
import type { SessionStatus } from './session-transitions.js';

const STATE_COLUMNS = `
  s.status AS "sessionStatus", s.current_turn AS "currentTurn", t.status, t.exit_code AS "exitCode",
  t.error, t.stale_count AS "staleCount", t.last_log_id AS "lastId"`;
const CONNECT = {
  name: 'streams-connect',
  text: `
    SELECT s.provider, ${STATE_COLUMNS},
      coalesce((SELECT max(o.turn_number) FROM turns o
        WHERE o.session_id = s.id AND o.first_output_id <= $3), 0) AS "announcedTurn"
    FROM sessions s JOIN turns t ON t.session_id = s.id AND t.turn_number = s.current_turn
    WHERE s.id = $1 AND s.user_id = $2`,
};
const STATE = {
  name: 'streams-state',
  text: `
    SELECT ${STATE_COLUMNS}
    FROM sessions s JOIN turns t ON t.session_id = s.id AND t.turn_number = $2
    WHERE s.id = $1`,
};

/** Where a session stands when a stream connects. */
export interface StreamStart {
  provider: string;
  /** The last turn whose `turn_start` a client with this cursor has had; 0 for none. */
  announcedTurn: number;
  /** Of the latest turn: the stream ends with it. */
  state: StreamState;
}

/** Where the turn that a stream follows stands. */
export interface StreamState {
  sessionStatus: SessionStatus;
  currentTurn: number;
  status: SessionStatus;
  exitCode: number | null;
  error: string | null;
  staleCount: number;
  /** The id of the last row that the session had up to this turn's present. */
  lastId: number;
}

type ConnectRow = StreamState & { provider: string; announcedTurn: number };

/** What streams need to know of a session besides its log. */
@Injectable()
export class StreamStates {
  constructor(private readonly sql: Sql) {}

  /** @returns `undefined` for a session that does not exist or is not this user's. */
  async connect(
    userId: string,
    sessionId: string,
    cursor: number,
  ): Promise<StreamStart | undefined> {
    if (!isUuid(sessionId)) return undefined;
    const [row] = await this.sql.query<ConnectRow>(CONNECT, [sessionId, userId, cursor]);
    if (!row) return undefined;
    const { provider, announcedTurn, ...state } = row;
    return { provider, announcedTurn, state };
  }

  /** @returns `undefined` when the session has been deleted. */
  async ofTurnUnscoped(sessionId: string, turn: number): Promise<StreamState | undefined> {
    const rows = await this.sql.query<StreamState & Record<string, unknown>>(STATE, [
      sessionId,
      turn,
    ]);
    return rows[0];
  }
}
