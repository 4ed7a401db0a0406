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

/** When a statement carries as much, further turns wait for the next one. */
const BATCH_BYTES = 4 * 1024 * 1024;
const RETRY_MS = [50, 100, 250, 500, 1000];

/** What one turn writes while a statement is under way, to be part of the next one. */
interface Batch {
  readonly rows: NewLogRow[];
  position: SpoolPosition;
  progress: TurnProgress;
  bytes: number;
  readonly committed: PromiseWithResolvers<void>;
}

/** What one turn adds to a commit; `after` is the id of the session's event before it. */
interface Part {
  batch: Batch;
  commit: TurnCommit;
  after: number;
}

/** One turn's way into the log. Writes are applied in the order in which they are made. */
export class TurnLog {
  private open: Batch | undefined;
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
   * @returns resolves once they are committed, and were told to the readers of this process; the same promise for all
   *   writes that are committed together.
   * @throws LeaseLost
   */
  write(
    rows: readonly NewLogRow[],
    position: SpoolPosition,
    progress: TurnProgress,
  ): Promise<void> {
    if (this.lost) return Promise.reject(new LeaseLost());
    const batch = (this.open ??= {
      rows: [],
      position,
      progress,
      bytes: 0,
      committed: Promise.withResolvers(),
    });
    for (const row of rows) {
      batch.rows.push(row);
      batch.bytes += row.data.length;
      this.pendingBytes += row.data.length;
    }
    batch.position = position;
    batch.progress = progress;
    this.onWrite(this);
    return batch.committed.promise;
  }

  /** Takes what was written up to now, numbered. */
  take(): Part | undefined {
    const batch = this.open;
    if (!batch) return undefined;
    this.open = undefined;
    const { rows, position, progress } = batch;
    const after = this.lastId;
    this.lastId += rows.length;
    const output = rows.findIndex((row) => row.kind !== LogKind.stage);
    return {
      batch,
      after,
      commit: {
        turnId: this.turn.id,
        sessionId: this.turn.session_id,
        turnNumber: this.turn.turn_number,
        fencing: this.turn.fencing,
        seq: this.seq,
        rows: frameRows(rows, this.turn.turn_number, after),
        lastId: this.lastId,
        firstOutputId: output === -1 ? null : after + output + 1,
        position,
        progress,
      },
    };
  }

  /** Learns what became of what was taken. */
  settle(batch: Batch, outcome: CommitOutcome): void {
    if (outcome === 'lost') return this.abandon(batch, new LeaseLost());
    this.seq += 1;
    this.pendingBytes -= batch.bytes;
    batch.committed.resolve();
  }

  abandon(batch: Batch, error: Error): void {
    this.lost = true;
    batch.committed.reject(error);
    this.open?.committed.reject(error);
    this.open = undefined;
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
      const parts: (Part & { log: TurnLog })[] = [];
      let bytes = 0;
      for (const log of this.ready) {
        if (bytes >= BATCH_BYTES) break;
        this.ready.delete(log);
        const part = log.take();
        if (!part) continue;
        parts.push({ log, ...part });
        bytes += part.batch.bytes;
      }
      const outcomes = await this.commit(parts.map((part) => part.commit));
      for (const [index, part] of parts.entries()) {
        const { log, batch } = part;
        const outcome = outcomes?.[index];
        if (!outcome) {
          log.abandon(batch, new Draining());
          this.ready.delete(log);
          continue;
        }
        if (outcome === 'committed') this.tell(part);
        log.settle(batch, outcome);
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
