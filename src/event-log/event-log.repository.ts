import { Injectable } from '@nestjs/common';
import { Limited } from '../common/async.js';
import { AppConfig } from '../config/app-config.js';
import { Sql, type SqlExecutor } from '../database/sql.js';

/**
 * The kinds of log rows. The numbers are stored. New output is written as framed rows; rows with single chunks exist
 * only in logs that are older than framed rows.
 */
export const LogKind = { stage: 0, stdout: 1, stderr: 2, framed: 3 } as const;
export type LogKind = (typeof LogKind)[keyof typeof LogKind];

/** A row of a session's log, as stored. Within a session, ids ascend in the order in which rows became visible. */
export interface LogRow {
  /** For a framed row, the id of its last event. */
  id: number;
  turn: number;
  kind: LogKind;
  /** For a stage, the JSON of {@link StageEvent}; framed, whole Server-Sent Events; else output text. */
  data: string;
}

/** A stage or a chunk of output that has not been assigned an id yet. */
export interface NewLogRow {
  kind: Exclude<LogKind, typeof LogKind.framed>;
  data: string;
}

/** An event of a provisioning step, as stored and sent. */
export interface StageEvent {
  stage: StageName;
  state: 'started' | 'done' | 'failed';
  /** Present for `done` and `failed`. */
  duration_ms?: number;
  /** Present for `failed`: short, without secrets. */
  message?: string;
}

/** All stages in execution order. */
export const STAGE_NAMES = [
  'create_sprite',
  'network_policy',
  'env_file',
  'git_credentials',
  'provision_setup',
  'mcp_config',
  'skills',
  'runtime_start',
] as const;
export type StageName = (typeof STAGE_NAMES)[number];

const READ_AFTER = {
  name: 'event-log-read-after',
  text: `
    SELECT id, turn, kind, data FROM (
      SELECT id, turn, kind, data, sum(octet_length(data)) OVER (ORDER BY id) - octet_length(data) AS before
      FROM (
        SELECT id, turn, kind, data FROM event_log
        WHERE session_id = $1 AND id > $2 AND created_at >= now() - make_interval(days => $3)
        ORDER BY id LIMIT $4) page
      ) measured
    WHERE before < $5 ORDER BY id`,
};
/** The number of rows of a deleted log in one statement: at most about 30 MB. */
const PIECE_ROWS = 1_000;
const DELETE_PIECE = {
  name: 'event-log-delete-piece',
  text: `
    WITH gone AS (
      DELETE FROM event_log WHERE session_id = $1 AND id <= coalesce(
        (SELECT id FROM event_log WHERE session_id = $1 ORDER BY id OFFSET $2 - 1 LIMIT 1),
        (SELECT max(id) FROM event_log WHERE session_id = $1))
      RETURNING 1)
    SELECT count(*)::int AS gone FROM gone`,
};
const RECORD_DELETED = {
  name: 'deleted-logs-record',
  text: 'INSERT INTO deleted_logs (session_id) VALUES ($1) ON CONFLICT DO NOTHING',
};
const NEXT_DELETED = {
  name: 'deleted-logs-next',
  text: `
    SELECT session_id AS id FROM deleted_logs
    ORDER BY deleted_at LIMIT 1 FOR UPDATE SKIP LOCKED`,
};
const FORGET_DELETED = {
  name: 'deleted-logs-forget',
  text: 'DELETE FROM deleted_logs WHERE session_id = $1',
};

/** Reads the log. Rows past retention are invisible even while their partition is still there. */
@Injectable()
export class EventLogRepository {
  /**
   * Limits concurrent reads. Streams queue here without a time limit instead of waiting for a connection of the pool,
   * which fails after 5 s.
   */
  private readonly reads: Limited;

  constructor(
    private readonly sql: Sql,
    private readonly config: AppConfig,
  ) {
    this.reads = new Limited(Math.ceil(config.databasePoolSize / 2));
  }

  /**
   * Reads the next rows with events after a cursor, oldest first. The first row may also contain earlier events. The
   * caller must have checked that the session belongs to the user.
   * @param limit the maximum number of rows, and the number of bytes after which reading stops.
   */
  async readAfterUnscoped(
    sessionId: string,
    cursor: number,
    limit: { rows: number; bytes: number },
  ): Promise<LogRow[]> {
    return this.reads.run(() =>
      this.sql.query<LogRow>(READ_AFTER, [
        sessionId,
        cursor,
        this.config.logRetentionDays,
        limit.rows,
        limit.bytes,
      ]),
    );
  }

  /**
   * Deletes the log in the transaction that deletes its session. A log that is too large is recorded for
   * {@link deletePiece} instead, and is no longer readable.
   */
  async deleteSessionUnscoped(sql: SqlExecutor, sessionId: string): Promise<void> {
    if (!(await this.removePiece(sql, sessionId))) await sql.query(RECORD_DELETED, [sessionId]);
  }

  /**
   * Deletes a part of the log of a deleted session. Safe to run concurrently, and after a process died.
   * @returns false if nothing is left to delete, or other processes are deleting it.
   */
  async deletePiece(): Promise<boolean> {
    return this.sql.transaction(async (sql) => {
      const [deleted] = await sql.query<{ id: string }>(NEXT_DELETED);
      if (!deleted) return false;
      if (await this.removePiece(sql, deleted.id)) await sql.query(FORGET_DELETED, [deleted.id]);
      return true;
    });
  }

  /** @returns whether nothing is left of the log. */
  private async removePiece(sql: SqlExecutor, sessionId: string): Promise<boolean> {
    const [row] = await sql.query<{ gone: number }>(DELETE_PIECE, [sessionId, PIECE_ROWS]);
    return (row?.gone ?? 0) < PIECE_ROWS;
  }
}
