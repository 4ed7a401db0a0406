import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import { Notifier } from '../event-log/log-notifications.js';
import type { LogKind, LogRow } from '../event-log/event-log.repository.js';
import { markSandboxes, restSandbox } from '../sandboxes/lifecycle/session-sandboxes.js';
import type { TurnProgress } from './turn-queue.repository.js';

/** The position up to which the runtime's spool is in the log. The output decoder defines the numbers. */
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
  /** The number of commits before this one. It identifies a commit whose answer was lost. */
  seq: number;
  /** Their ids continue after the session's last row; see `frameRows`. */
  rows: readonly LogRow[];
  /** The id of the last event, and the id of the turn's first output event if that is among the rows. */
  lastId: number;
  firstOutputId: number | null;
  position: SpoolPosition;
  progress: TurnProgress;
}

/**
 * The result for a turn's part: it is in the log, from this or an earlier attempt; or the turn belongs to another
 * worker; or another connection has locked the turn, so the commit has to be retried.
 */
export type CommitOutcome = 'committed' | 'lost' | 'locked';

/** How a turn ended. */
export interface TurnEnd {
  status: 'completed' | 'failed';
  exitCode: number | null;
  error: string | null;
}

/** A commit may be repeated, so after this time a retry is better than waiting longer. */
const ANSWER_MS = 10_000;

// The rows come with their ids: only the lease holder numbers a session's events, and the sequence number ensures that
// there was no other commit in between. Skips locked turns, so that a lock on one turn does not delay others.
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
      FOR UPDATE OF t SKIP LOCKED
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
    ), notified AS (
      SELECT pg_notify($16, payload) FROM unnest($17::text[]) AS payload
    )
    SELECT part::int, (SELECT count(*) FROM notified) AS notifications FROM owned`,
};
// A higher sequence number belongs to another committer.
const STANDING = {
  name: 'turns-commit-applied',
  timeoutMs: ANSWER_MS,
  text: `
    SELECT i.part::int, t.commit_seq > i.seq AS applied
    FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) WITH ORDINALITY
      AS i (turn_id, fencing, seq, part)
    JOIN turns t ON t.id = i.turn_id
    WHERE t.fencing = i.fencing AND t.commit_seq IN (i.seq, i.seq + 1) AND t.status = 'running'`,
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

/** Writes what the lease holder reports: output together with its end position, and the end of the turn. */
@Injectable()
export class TurnOutputRepository {
  constructor(
    private readonly sql: Sql,
    private readonly notifier: Notifier,
  ) {}

  /** Notifies the session's streams that the progress of provisioning has changed. */
  async announceProgress(sessionId: string): Promise<void> {
    await this.notifier.sendChange(this.sql, sessionId);
    this.notifier.changed(sessionId);
  }

  /**
   * Writes the output of many turns in one statement, with one notification. A turn's part is applied only if its
   * fencing token is current and its sequence number is the next one, and then completely. A turn may have several
   * parts: if a worker has lost the turn and claimed it again, writes of the old claim may still be waiting next to
   * those of the new one.
   * @throws if the database did not answer. The commit may have been applied; call again with `repeated`.
   */
  async commit(commits: readonly TurnCommit[], repeated: boolean): Promise<CommitOutcome[]> {
    const before = repeated ? await this.standing(commits) : new Map<TurnCommit, boolean>();
    const open = commits.filter((commit) => before.get(commit) !== true);
    const applied = new Set(await this.apply(open));
    const missing = open.filter((commit) => !applied.has(commit));
    const after = await this.standing(missing);
    return commits.map((commit) => {
      if (applied.has(commit) || before.get(commit) === true) return 'committed';
      // The first attempt may have been applied just now, while this one found the turn locked.
      if (after.get(commit) === true) return repeated ? 'committed' : 'lost';
      return after.has(commit) ? 'locked' : 'lost';
    });
  }

  /** @returns what was applied. */
  private async apply(commits: readonly TurnCommit[]): Promise<TurnCommit[]> {
    if (commits.length === 0) return [];
    const rows = commits.flatMap((commit, index) =>
      commit.rows.map((row) => ({ ...row, part: index + 1 })),
    );
    // Sent as one binary value, because in an array every quotation mark of every frame would have to be escaped.
    const texts = rows.map((row) => Buffer.from(row.data));
    let end = 0;
    const notified = commits
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
      this.notifier.rowChannel,
      this.notifier.rowPayloads([...new Set(notified)]),
    ]);
    return answers.map(({ part }) => commits[part - 1]).filter((commit) => commit !== undefined);
  }

  /**
   * Ends the turn and updates its session, in one transaction.
   * @returns false if the turn was terminated or taken over by another worker.
   */
  async end(
    turn: { id: string; sessionId: string; fencing: number },
    end: TurnEnd,
  ): Promise<boolean> {
    const ended = await this.sql
      .transaction(async (sql) => {
        // All transactions lock sessions before turns.
        await sql.query(END_SESSION, [turn.sessionId, end.status, end.exitCode, end.error]);
        const rows = await sql.query(END_TURN, [
          turn.id,
          turn.fencing,
          end.status,
          end.exitCode,
          end.error,
        ]);
        if (rows.length === 0) throw new NotOurs();
        if (end.status === 'completed') await restSandbox(sql, turn.sessionId);
        else await markSandboxes(sql, [turn.sessionId]);
        await this.notifier.sendChange(sql, turn.sessionId);
        await this.notifier.sendWork(sql);
        return true;
      })
      .catch(async (error: unknown) => {
        if (!(error instanceof NotOurs)) throw error;
        // If this repeats a transaction whose answer was lost, the turn has ended already.
        const found = await this.sql.query(ENDED, [turn.id, turn.fencing, end.status]);
        return found.length > 0;
      });
    // Also if the turn was not ours: a first attempt whose answer was lost may have applied the transaction.
    this.notifier.changed(turn.sessionId);
    this.notifier.workAvailable();
    return ended;
  }

  /** @returns for each commit whose turn still belongs to the committer, whether it has been applied. */
  private async standing(commits: readonly TurnCommit[]): Promise<Map<TurnCommit, boolean>> {
    const standing = new Map<TurnCommit, boolean>();
    if (commits.length === 0) return standing;
    const rows = await this.sql.query<{ part: number; applied: boolean }>(STANDING, [
      commits.map((commit) => commit.turnId),
      commits.map((commit) => commit.fencing),
      commits.map((commit) => commit.seq),
    ]);
    for (const { part, applied } of rows) {
      const commit = commits[part - 1];
      if (commit) standing.set(commit, applied);
    }
    return standing;
  }
}

/** Rolls a transaction back. */
class NotOurs extends Error {}
