import { LogKind, type NewLogRow, type StageEvent } from '../event-log/event-log.repository.js';
import { storableJson } from '../common/storable.js';
import { outsideWork } from '../common/work-context.js';
import type { Draining, LeaseLost, TurnRefused } from './interruptions.js';
import type { OutcomeTracker, OutputDecoder } from './output-decoder.js';
import type { OutputWriter } from './output-writer.js';
import type { TurnLog } from './turn-log.js';
import type { SpoolPosition } from './turn-output.repository.js';
import type { ClaimedTurn, TurnProgress } from './turn-queue.repository.js';

/** A turn's position and its log: rows are written together with the position after them. */
export class TurnJournal {
  /** The turn's progress. Stages are changed in place. */
  progress: TurnProgress;
  private at: SpoolPosition;
  /** The outcome according to the output so far. */
  private outcome: OutcomeTracker | undefined;
  private readonly log: TurnLog;
  /** Called when a batch is committed. The progress does not change without a write. */
  private readonly storable = (): TurnProgress => {
    const outcome = this.outcome ? this.outcome.state() : this.progress.outcome;
    return storableJson({ ...this.progress, outcome }) as TurnProgress;
  };

  /** @param onFailure called for each failed write: the turn belongs to another worker, or cannot be stored. */
  constructor(
    writer: OutputWriter,
    turn: ClaimedTurn,
    private readonly onFailure: (error: TurnRefused | LeaseLost | Draining) => void,
  ) {
    this.log = writer.open(turn);
    this.progress = structuredClone(turn.progress);
    this.at = { offset: turn.spool_offset, stdout: turn.spool_stdout, stderr: turn.spool_stderr };
  }

  /** The position in the runtime's spool up to which output was read. */
  get position(): SpoolPosition {
    return this.at;
  }

  /** Whether rows were committed. */
  get hasProgressed(): boolean {
    return this.log.committedRows > 0;
  }

  /** Bytes that are written but not committed yet. */
  get pendingBytes(): number {
    return this.log.pendingBytes;
  }

  /** Writes a stage's event. @returns resolves when it is committed. */
  stage(event: StageEvent): Promise<void> {
    const row = { kind: LogKind.stage, data: JSON.stringify(event) };
    return this.write([row]);
  }

  /**
   * Writes rows together with their end position and the outcome so far, so that a successor can continue from there.
   */
  output(
    decoder: OutputDecoder,
    rows: readonly NewLogRow[],
    outcome: OutcomeTracker,
  ): Promise<void> {
    outcome.take(rows);
    this.outcome = outcome;
    this.at = decoder.position();
    return this.write(rows);
  }

  /** Resolves when everything is committed. */
  flush(): Promise<void> {
    return this.write([]);
  }

  private write(rows: readonly NewLogRow[]): Promise<void> {
    // The writer serves all turns, so it must not run in the context of one of them.
    const written = outsideWork(() => this.log.write(rows, this.at, this.storable));
    written.catch(this.onFailure);
    return written;
  }
}
