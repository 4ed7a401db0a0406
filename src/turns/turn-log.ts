import { frameRows } from '../event-log/frames.js';
import { LogKind, type NewLogRow } from '../event-log/event-log.repository.js';
import type { ClaimedTurn, TurnProgress } from './turn-queue.repository.js';
import type { SpoolPosition, TurnCommit } from './turn-output.repository.js';

/** The overhead of a row beside its data, framed and stored. Bytes. */
const ROW_BYTES = 100;
/** Waiting rows of one stream are joined up to this length. Characters. */
const JOINED_CHARACTERS = 4 * 1024;
/** The fields of a turn that its log needs. */
export type LoggedTurn = Pick<
  ClaimedTurn,
  'id' | 'session_id' | 'turn_number' | 'fencing' | 'commit_seq' | 'last_log_id'
>;

/** A turn's writes while a statement runs; they become part of the next one. */
interface Batch {
  readonly rows: NewLogRow[];
  position: SpoolPosition;
  progress: () => TurnProgress;
  bytes: number;
  readonly committed: PromiseWithResolvers<void>;
}

/** One turn's part of a commit. */
export interface Part {
  readonly log: TurnLog;
  readonly batch: Batch;
  readonly commit: TurnCommit;
  /** The id of the session's last event before it. */
  readonly after: number;
  /** Was there an earlier attempt to commit it? Then it may have been applied already. */
  isRepeated: boolean;
  /** How often it was postponed. */
  waits: number;
  /**
   * How often it was rejected with the same error as all others, and how many parts this worker had committed before
   * that began.
   */
  refusals: number;
  refusedAt: number | undefined;
}

/** The log of one turn. Writes are applied in order. */
export class TurnLog {
  private open: Batch | undefined;
  /** The part that is being committed. */
  private taken: Part | undefined;
  /** Bytes that are written but not committed yet, as stored. Used for backpressure. */
  pendingBytes = 0;
  committedRows = 0;
  private seq: number;
  /** The id of the session's last event, including events that are being committed. */
  private lastId: number;
  /** The reason why nothing more can be written. */
  private ended: Error | undefined;

  constructor(
    private readonly turn: LoggedTurn,
    private readonly onWrite: (log: TurnLog) => void,
  ) {
    this.seq = turn.commit_seq;
    this.lastId = turn.last_log_id;
  }

  /** Is a part of it being committed? */
  get isTaken(): boolean {
    return this.taken !== undefined;
  }

  /** Are there writes that were not taken yet? */
  get isOpen(): boolean {
    return this.open !== undefined;
  }

  /** Bytes of the writes that were not taken yet, as stored. */
  get openBytes(): number {
    return this.open?.bytes ?? 0;
  }

  /**
   * Queues rows together with the turn's position after them.
   * @param progress called once per batch, so that many small writes do not each pay for it.
   * @returns resolves once they are committed and passed to the readers of this process; the same promise for all
   *   writes of a batch.
   * @throws LeaseLost, TurnRefused or Draining
   */
  write(
    rows: readonly NewLogRow[],
    position: SpoolPosition,
    progress: () => TurnProgress,
  ): Promise<void> {
    if (this.ended) return Promise.reject(this.ended);
    const batch = (this.open ??= {
      rows: [],
      position,
      progress,
      bytes: 0,
      committed: Promise.withResolvers(),
    });
    const before = batch.bytes;
    for (const row of rows) addRow(batch, row);
    this.pendingBytes += batch.bytes - before;
    batch.position = position;
    batch.progress = progress;
    this.onWrite(this);
    return batch.committed.promise;
  }

  /** Takes the writes up to now and numbers their rows. */
  take(): Part | undefined {
    const batch = this.open;
    if (!batch || this.taken) return undefined;
    const { rows, position } = batch;
    const after = this.lastId;
    const lastId = after + rows.length;
    const output = rows.findIndex((row) => row.kind !== LogKind.stage);
    const commit = {
      turnId: this.turn.id,
      sessionId: this.turn.session_id,
      turnNumber: this.turn.turn_number,
      fencing: this.turn.fencing,
      seq: this.seq,
      rows: frameRows(rows, this.turn.turn_number, after),
      lastId,
      firstOutputId: output === -1 ? null : after + output + 1,
      position,
      progress: batch.progress(),
    };
    const state = { isRepeated: false, waits: 0, refusals: 0, refusedAt: undefined };
    this.lastId = lastId;
    this.open = undefined;
    this.taken = { log: this, batch, commit, after, ...state };
    return this.taken;
  }

  /** Marks the taken part as committed. */
  settle({ batch }: Part): void {
    this.taken = undefined;
    this.seq += 1;
    this.committedRows += batch.rows.length;
    this.pendingBytes -= batch.bytes;
    batch.committed.resolve();
  }

  /** Rejects all writes, and all later ones. */
  abandon(error: Error): void {
    this.ended = error;
    this.taken?.batch.committed.reject(error);
    this.open?.committed.reject(error);
    this.taken = undefined;
    this.open = undefined;
  }
}

/** Joins waiting output, because each row adds overhead to its data. */
function addRow(batch: Batch, { kind, data }: NewLogRow): void {
  const last = batch.rows.at(-1);
  batch.bytes += data.length;
  const joins = kind !== LogKind.stage && last?.kind === kind;
  if (joins && last.data.length + data.length <= JOINED_CHARACTERS) {
    last.data += data;
    return;
  }
  batch.bytes += ROW_BYTES;
  batch.rows.push({ kind, data });
}
