import { Injectable, Logger } from '@nestjs/common';
import { setTimeout as delay } from 'node:timers/promises';
import { Doorbell } from '../event-log/doorbell.js';
import { frameRows } from '../event-log/frames.js';
import { LogKind, type NewLogRow } from '../event-log/log-row.js';
import type { ClaimedTurn, TurnProgress } from '../sessions/turn-lease.repository.js';
import {
  type CommitOutcome,
  type SpoolPosition,
  type TurnCommit,
  TurnOutputRepository,
} from '../sessions/turn-output.repository.js';
import { Draining, LeaseLost } from './interruptions.js';

/** What one statement carries at most; a single write may be larger. */
const BATCH_ROWS = 4000;
const BATCH_BYTES = 4 * 1024 * 1024;
const RETRY_MS = [50, 100, 250, 500, 1000];

interface Write {
  rows: readonly NewLogRow[];
  position: SpoolPosition;
  progress: TurnProgress;
  bytes: number;
  settle(error?: Error): void;
}

/** What one turn adds to a commit; `after` is the id of the session's event before it. */
interface Part {
  commit: TurnCommit;
  writes: Write[];
  after: number;
}

/** One turn's way into the log. Writes are applied in the order in which they are made. */
export class TurnLog {
  private readonly queue: Write[] = [];
  /** Bytes that were written and not committed yet: what backpressure looks at. */
  pendingBytes = 0;
  private seq: number;
  /** The id of the session's last event, those included that are being committed. */
  private lastId: number;
  private lost = false;

  constructor(
    private readonly turn: Pick<
      ClaimedTurn,
      'id' | 'session_id' | 'turn_number' | 'fencing' | 'commit_seq' | 'last_log_id'
    >,
    private readonly onWrite: (log: TurnLog) => void,
  ) {
    this.seq = turn.commit_seq;
    this.lastId = turn.last_log_id;
  }

  /**
   * Queues rows together with where the turn stands after them.
   * @returns resolves once they are committed, and were told to the readers of this process.
   * @throws LeaseLost
   */
  write(
    rows: readonly NewLogRow[],
    position: SpoolPosition,
    progress: TurnProgress,
  ): Promise<void> {
    if (this.lost) return Promise.reject(new LeaseLost());
    const bytes = rows.reduce((sum, row) => sum + row.data.length, 0);
    this.pendingBytes += bytes;
    return new Promise((resolve, reject) => {
      const settle = (error?: Error): void => {
        this.pendingBytes -= bytes;
        if (error) reject(error);
        else resolve();
      };
      this.queue.push({ rows, position, progress, bytes, settle });
      this.onWrite(this);
    });
  }

  get hasWork(): boolean {
    return this.queue.length > 0;
  }

  /** Takes the next writes, joined into one commit, within what is left of a batch. */
  take(limit: { rows: number; bytes: number }): Part {
    const writes: Write[] = [];
    let rows = 0;
    let bytes = 0;
    for (let next = this.queue[0]; next; next = this.queue[0]) {
      if (
        writes.length > 0 &&
        (rows + next.rows.length > limit.rows || bytes + next.bytes > limit.bytes)
      ) {
        break;
      }
      rows += next.rows.length;
      bytes += next.bytes;
      writes.push(next);
      this.queue.shift();
    }
    const last = writes.at(-1);
    if (!last) throw new Error('Nothing to take');
    limit.rows -= rows;
    limit.bytes -= bytes;
    const fresh = writes.flatMap((write) => write.rows);
    const after = this.lastId;
    this.lastId += fresh.length;
    const output = fresh.findIndex((row) => row.kind !== LogKind.stage);
    return {
      writes,
      after,
      commit: {
        turnId: this.turn.id,
        sessionId: this.turn.session_id,
        turnNumber: this.turn.turn_number,
        fencing: this.turn.fencing,
        seq: this.seq,
        rows: frameRows(fresh, this.turn.turn_number, after),
        lastId: this.lastId,
        firstOutputId: output === -1 ? null : after + output + 1,
        position: last.position,
        progress: last.progress,
      },
    };
  }

  /** Learns what became of the writes that were taken. */
  settle(writes: readonly Write[], outcome: CommitOutcome): void {
    if (outcome === 'committed') {
      this.seq += 1;
      for (const write of writes) write.settle();
      return;
    }
    this.fail([...writes, ...this.queue.splice(0)], new LeaseLost());
  }

  abandon(writes: readonly Write[], error: Error): void {
    this.fail([...writes, ...this.queue.splice(0)], error);
  }

  private fail(writes: readonly Write[], error: Error): void {
    this.lost = true;
    for (const write of writes) write.settle(error);
  }
}

/**
 * Commits the output of all turns of this worker: what gathered while the last statement ran goes with the next one, so
 * an idle writer commits at once and a busy one in large batches. Commits first, tells the readers after.
 */
@Injectable()
export class OutputWriter {
  private readonly logger = new Logger(OutputWriter.name);
  private readonly ready = new Set<TurnLog>();
  private running: Promise<void> | undefined;
  private closed = false;

  constructor(
    private readonly repository: TurnOutputRepository,
    private readonly doorbell: Doorbell,
  ) {}

  open(
    turn: Pick<
      ClaimedTurn,
      'id' | 'session_id' | 'turn_number' | 'fencing' | 'commit_seq' | 'last_log_id'
    >,
  ): TurnLog {
    return new TurnLog(turn, (log) => {
      this.ready.add(log);
      this.running ??= this.run();
    });
  }

  /** Gives up on a database that does not answer; what is not committed stays in the spools. */
  async close(): Promise<void> {
    this.closed = true;
    await this.running;
  }

  private async run(): Promise<void> {
    // A turn of the event loop lets all that arrived together leave together.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.ready.size > 0) {
      const limit = { rows: BATCH_ROWS, bytes: BATCH_BYTES };
      const parts: (Part & { log: TurnLog })[] = [];
      for (const log of this.ready) {
        this.ready.delete(log);
        parts.push({ log, ...log.take(limit) });
        if (log.hasWork) this.ready.add(log);
        if (limit.rows <= 0 || limit.bytes <= 0 || parts.some((part) => part.log.hasWork)) break;
      }
      const outcomes = await this.commit(parts.map((part) => part.commit));
      for (const [index, part] of parts.entries()) {
        const { log, writes } = part;
        const outcome = outcomes?.[index];
        if (!outcome) {
          log.abandon(writes, new Draining());
          this.ready.delete(log);
          continue;
        }
        if (outcome === 'committed') this.tell(part);
        log.settle(writes, outcome);
        if (outcome === 'lost') this.ready.delete(log);
      }
    }
    // In the same step as the last look at what is ready: nothing can be queued in between and stay there.
    this.running = undefined;
  }

  private async commit(commits: readonly TurnCommit[]): Promise<CommitOutcome[] | undefined> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await this.repository.commit(commits, attempt > 0);
      } catch (error) {
        if (attempt === 0)
          this.logger.warn(`Output could not be committed, trying on: ${String(error)}`);
        if (this.closed) return undefined;
        await delay(RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)]);
        if (this.closed) return undefined;
      }
    }
  }

  private tell({ commit: { sessionId, rows }, after }: Part): void {
    if (rows.length > 0) this.doorbell.emit('log.committed', { sessionId, after, rows });
  }
}
