import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import { Doorbell } from '../event-log/doorbell.js';
import type { LogKind, LogRow } from '../event-log/log-row.js';
import type { TurnProgress } from './turn-lease.repository.js';

/** Up to where the runtime's spool is in the log; see the output decoder for what the numbers mean. */
export interface SpoolPosition {
  offset: number;
  stdout: number;
  stderr: number;
}

/** One turn's part of a group commit. */
export interface TurnCommit {
  turnId: string;
  sessionId: string;
  turnNumber: number;
  fencing: number;
  /** The number of commits before this one: a commit whose answer was lost is recognised by it. */
  seq: number;
  /** Numbered on from the session's last row; see `frameRows`. */
  rows: readonly LogRow[];
  /** The id of the last event, and of the turn's first event of output if that is among the rows. */
  lastId: number;
  firstOutputId: number | null;
  position: SpoolPosition;
  progress: TurnProgress;
}

/** What became of a turn's part: it is in the log, now or since an earlier try, or the turn is no longer the committer's. */
export type CommitOutcome = 'committed' | 'lost';

/** How a turn ended. */
export interface TurnEnd {
  status: 'completed' | 'failed';
  exitCode: number | null;
  error: string | null;
}

/** A commit may be repeated, so that waiting longer for an answer is worse than asking again. */
const ANSWER_MS = 10_000;

// The rows come with their ids: the one who holds the lease is the only one who numbers a session's events, and the
// sequence number says that no other commit has come in between.
const COMMIT = {
  name: 'turns-commit-output',
  timeoutMs: ANSWER_MS,
  text: `
    WITH input AS (
      SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
        $6::bigint[], $7::jsonb[], $8::bigint[], $9::bigint[]) WITH ORDINALITY
        AS i (turn_id, fencing, seq, spool_offset, spool_stdout, spool_stderr, progress, last_id,
          first_output, part)
    ), owned AS MATERIALIZED (
      SELECT i.part, t.id, t.session_id, t.turn_number, i.spool_offset, i.spool_stdout,
        i.spool_stderr, i.progress, i.last_id, i.first_output
      FROM input i JOIN turns t ON t.id = i.turn_id
      WHERE t.status = 'running' AND t.fencing = i.fencing AND t.commit_seq = i.seq
      ORDER BY t.id
      FOR UPDATE OF t
    ), logged AS (
      INSERT INTO event_log (session_id, id, created_at, turn, kind, data)
      SELECT o.session_id, x.id, clock_timestamp(), o.turn_number, x.kind,
        convert_from(substring($13::bytea FROM x.start FOR x.length), 'UTF8')
      FROM unnest($10::integer[], $11::bigint[], $12::smallint[], $14::integer[],
        $15::integer[]) AS x (part, id, kind, start, length)
      JOIN owned o ON o.part = x.part
    ), moved AS (
      UPDATE turns t SET
        commit_seq = t.commit_seq + 1,
        spool_offset = o.spool_offset,
        spool_stdout = o.spool_stdout,
        spool_stderr = o.spool_stderr,
        progress = o.progress,
        active_at = CASE WHEN o.last_id = t.last_log_id THEN t.active_at ELSE clock_timestamp() END,
        last_log_id = o.last_id,
        first_output_id = coalesce(t.first_output_id, o.first_output)
      FROM owned o WHERE t.id = o.id
    ), rung AS (
      SELECT pg_notify($16, payload) FROM unnest($17::text[]) AS payload
    )
    SELECT part::int, (SELECT count(*) FROM rung) AS bells FROM owned`,
};
const APPLIED = {
  name: 'turns-commit-applied',
  timeoutMs: ANSWER_MS,
  text: `
    SELECT i.part::int FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) WITH ORDINALITY
      AS i (turn_id, fencing, seq, part)
    JOIN turns t ON t.id = i.turn_id
    WHERE t.fencing = i.fencing AND t.commit_seq = i.seq + 1 AND t.status = 'running'`,
};
const END_SESSION = {
  name: 'sessions-end-turn',
  text: `
    UPDATE sessions SET status = $2, exit_code = $3, error = $4, updated_at = now()
    WHERE id = $1 AND status = 'running'`,
};
const END_TURN = {
  name: 'turns-end',
  text: `
    UPDATE turns SET status = $3, exit_code = $4, error = $5, ended_at = now(),
      lease_owner = NULL, lease_expires_at = NULL
    WHERE id = $1 AND fencing = $2 AND status = 'running' RETURNING id`,
};
const ENDED = {
  name: 'turns-ended',
  text: `
    SELECT id FROM turns
    WHERE id = $1 AND fencing = $2 AND status = $3 AND lease_owner IS NULL`,
};
const REST_SANDBOX = {
  name: 'sandboxes-rest',
  text: `
    UPDATE sandboxes SET
      idle_since = CASE WHEN $2 = 'completed' THEN now() END,
      doomed_at = CASE WHEN $2 = 'completed' THEN doomed_at ELSE now() END
    WHERE session_id = $1`,
};

/** What the lease holder writes: output together with the position it ends at, and the end of the turn. */
@Injectable()
export class TurnOutputRepository {
  constructor(
    private readonly sql: Sql,
    private readonly doorbell: Doorbell,
  ) {}

  /**
   * Writes the output of many turns in one statement, with one notification. A turn's part is applied only if its
   * fencing number still holds and its sequence number is next, and then wholly. A turn may come in several parts: of
   * a worker that lost it and has claimed it anew, the old claim's writes may still be waiting beside the new one's.
   * @throws when the database did not answer: the commit may have been applied; call again with `repeated`.
   */
  async commit(commits: readonly TurnCommit[], repeated: boolean): Promise<CommitOutcome[]> {
    const applied = repeated ? await this.alreadyApplied(commits) : new Set<TurnCommit>();
    const open = commits.filter((commit) => !applied.has(commit));
    for (const commit of await this.apply(open)) applied.add(commit);
    // The first try may have been applied just now, while this one waited for its locks.
    const missing = repeated ? open.filter((commit) => !applied.has(commit)) : [];
    for (const commit of await this.alreadyApplied(missing)) applied.add(commit);
    return commits.map((commit) => (applied.has(commit) ? 'committed' : 'lost'));
  }

  /** @returns what was applied. */
  private async apply(commits: readonly TurnCommit[]): Promise<TurnCommit[]> {
    if (commits.length === 0) return [];
    const rows = commits.flatMap((commit, index) =>
      commit.rows.map((row) => ({ ...row, part: index + 1 })),
    );
    // As one binary value: in an array, every quotation mark of every frame would have to be escaped.
    const texts = rows.map((row) => Buffer.from(row.data));
    let end = 0;
    const told = commits
      .filter(({ rows: own }) => own.length > 0)
      .map(({ sessionId }) => sessionId);
    const answers = await this.sql.query<{ part: number }>(COMMIT, [
      commits.map((commit) => commit.turnId),
      commits.map((commit) => commit.fencing),
      commits.map((commit) => commit.seq),
      commits.map((commit) => commit.position.offset),
      commits.map((commit) => commit.position.stdout),
      commits.map((commit) => commit.position.stderr),
      commits.map((commit) => JSON.stringify(commit.progress)),
      commits.map((commit) => commit.lastId),
      commits.map((commit) => commit.firstOutputId),
      rows.map((row) => row.part),
      rows.map((row) => row.id),
      rows.map((row) => row.kind satisfies LogKind),
      Buffer.concat(texts),
      texts.map(({ length }) => (end += length) - length + 1),
      texts.map(({ length }) => length),
      this.doorbell.rowChannel,
      this.doorbell.rowPayloads([...new Set(told)]),
    ]);
    return answers.map(({ part }) => commits[part - 1]).filter((commit) => commit !== undefined);
  }

  /**
   * Ends the turn and with it the session's activity, in one transaction.
   * @returns false when the turn is no longer the caller's: terminated, or taken over.
   */
  async end(
    turn: { id: string; sessionId: string; fencing: number },
    end: TurnEnd,
  ): Promise<boolean> {
    const ended = await this.sql
      .transaction(async (sql) => {
        // Sessions are locked before turns, everywhere.
        await sql.query(END_SESSION, [turn.sessionId, end.status, end.exitCode, end.error]);
        const rows = await sql.query(END_TURN, [
          turn.id,
          turn.fencing,
          end.status,
          end.exitCode,
          end.error,
        ]);
        if (rows.length === 0) throw new NotOurs();
        await sql.query(REST_SANDBOX, [turn.sessionId, end.status]);
        await this.doorbell.ringChange(sql, turn.sessionId);
        await this.doorbell.ringWork(sql);
        return true;
      })
      .catch(async (error: unknown) => {
        if (!(error instanceof NotOurs)) throw error;
        // It is ended when this is the repetition of a transaction whose answer was lost.
        const found = await this.sql.query(ENDED, [turn.id, turn.fencing, end.status]);
        return found.length > 0;
      });
    // Also when it was not ours: the transaction may have been applied by a first try whose answer was lost.
    this.doorbell.changed(turn.sessionId);
    this.doorbell.work();
    return ended;
  }

  private async alreadyApplied(commits: readonly TurnCommit[]): Promise<Set<TurnCommit>> {
    if (commits.length === 0) return new Set();
    const rows = await this.sql.query<{ part: number }>(APPLIED, [
      commits.map((commit) => commit.turnId),
      commits.map((commit) => commit.fencing),
      commits.map((commit) => commit.seq),
    ]);
    const parts = new Set(rows.map(({ part }) => part));
    return new Set(commits.filter((_commit, index) => parts.has(index + 1)));
  }
}

/** Rolls a transaction back. */
class NotOurs extends Error {}
