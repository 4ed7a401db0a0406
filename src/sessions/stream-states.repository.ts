import { Injectable } from '@nestjs/common';
import { Batched, Limited } from '../common/async.js';
import { isolate } from '../common/database-errors.js';
import { isUuid } from '../common/storable.js';
import { AppConfig } from '../config/app-config.js';
import { Sql } from '../database/sql.js';
import type { SessionStatus } from './session-transitions.js';

const STATE_COLUMNS = `
  s.status AS "sessionStatus", s.current_turn AS "currentTurn", t.status, t.exit_code AS "exitCode",
  t.error, t.stale_count AS "staleCount", t.last_log_id AS "lastId",
  CASE WHEN t.status = 'running' THEN t.progress->>'doing' END AS progress`;
const CONNECT = {
  name: 'streams-connect',
  text: `
    SELECT s.provider, ${STATE_COLUMNS},
      coalesce((SELECT max(o.turn_number) FROM turns o
        WHERE o.session_id = s.id AND o.first_output_id <= $3), 0) AS "announcedTurn"
    FROM sessions s JOIN turns t ON t.session_id = s.id AND t.turn_number = s.current_turn
    WHERE s.id = $1 AND s.user_id = $2`,
};
const STATES = {
  name: 'streams-states',
  text: `
    SELECT i.part::int, ${STATE_COLUMNS}
    FROM unnest($1::uuid[], $2::integer[]) WITH ORDINALITY AS i (session_id, turn, part)
    JOIN sessions s ON s.id = i.session_id
    JOIN turns t ON t.session_id = s.id AND t.turn_number = i.turn`,
};
/** The number of sessions in one statement, and of statements at a time. */
const BATCH = { keys: 500, queries: 2 };

/** The state of a session when a stream connects. */
export interface StreamStart {
  provider: string;
  /** The last turn whose `turn_start` a client with this cursor has received; 0 for none. */
  announcedTurn: number;
  /** The state of the latest turn. The stream ends with this turn. */
  state: StreamState;
}

/** The state of the turn that a stream follows. */
export interface StreamState {
  sessionStatus: SessionStatus;
  currentTurn: number;
  status: SessionStatus;
  exitCode: number | null;
  error: string | null;
  staleCount: number;
  /** The id of the session's last row, as of this turn's last commit. */
  lastId: number;
  /** The current step of provisioning; `null` once the sandbox is ready. */
  progress: string | null;
}

interface FollowedTurn {
  sessionId: string;
  turn: number;
}

const nameOf = ({ sessionId, turn }: FollowedTurn): string => `${sessionId}/${turn}`;

type ConnectRow = StreamState & { provider: string; announcedTurn: number };

/** Reads what streams need to know about a session in addition to its log. */
@Injectable()
export class StreamStates {
  private readonly states = new Batched<FollowedTurn, StreamState>({
    ...BATCH,
    nameOf,
    query: (turns) => this.read(turns),
  });
  /** Limits connects, so that clients that all reconnect at once do not occupy every database connection. */
  private readonly connects: Limited;

  constructor(
    private readonly sql: Sql,
    config: AppConfig,
  ) {
    this.connects = new Limited(Math.ceil(config.databasePoolSize / 2));
  }

  /** @returns `undefined` if the session does not exist or belongs to another user. */
  async connect(
    userId: string,
    sessionId: string,
    cursor: number,
  ): Promise<StreamStart | undefined> {
    if (!isUuid(sessionId)) return undefined;
    const [row] = await this.connects.run(() =>
      this.sql.query<ConnectRow>(CONNECT, [sessionId, userId, cursor]),
    );
    if (!row) return undefined;
    const { provider, announcedTurn, ...state } = row;
    return { provider, announcedTurn, state };
  }

  /** @returns `undefined` if the session has been deleted. */
  async ofTurnUnscoped(sessionId: string, turn: number): Promise<StreamState | undefined> {
    return this.states.get({ sessionId, turn });
  }

  private async read(turns: readonly FollowedTurn[]): Promise<Map<string, StreamState>> {
    const found = await isolate<FollowedTurn, [string, StreamState]>(
      turns,
      async (some) => {
        const rows = await this.sql.query<StreamState & { part: number }>(STATES, [
          some.map(({ sessionId }) => sessionId),
          some.map((followed) => followed.turn),
        ]);
        return rows.flatMap(({ part, ...state }) => {
          const followed = some[part - 1];
          return followed ? [[nameOf(followed), state]] : [];
        });
      },
      // Treats the session as deleted, so that only its own streams end.
      () => [],
    );
    return new Map(found);
  }
}
