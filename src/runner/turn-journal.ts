import { outsideWork } from '../common/work-context.js';
import { LogKind, type NewLogRow, type StageEvent } from '../event-log/log-row.js';
import type { ClaimedTurn, TurnProgress } from '../sessions/turn-lease.repository.js';
import type { SpoolPosition } from '../sessions/turn-output.repository.js';
import type { OutcomeTracker } from './outcome-tracker.js';
import type { OutputDecoder } from './output-decoder.js';
import type { OutputWriter, TurnLog } from './output-writer.js';

/** Where a turn stands, and its way into the log: rows are written together with where the turn is after them. */
export class TurnJournal {
  /** How far the turn has come. Stages are changed in place. */
  progress: TurnProgress;
  private at: SpoolPosition;
  private readonly log: TurnLog;

  /** @param onFailure told of every write that fails: the turn is no longer this worker's. */
  constructor(
    writer: OutputWriter,
    turn: ClaimedTurn,
    private readonly onFailure: (error: unknown) => void,
  ) {
    this.log = writer.open(turn);
    this.progress = structuredClone(turn.progress);
    this.at = { offset: turn.spool_offset, stdout: turn.spool_stdout, stderr: turn.spool_stderr };
  }

  /** Up to where the runtime's spool was taken. */
  get position(): SpoolPosition {
    return this.at;
  }

  /** Bytes that were written and not committed yet. */
  get pendingBytes(): number {
    return this.log.pendingBytes;
  }

  /** Writes a stage's event. @returns resolves when it is committed. */
  stage(event: StageEvent): Promise<void> {
    const row = { kind: LogKind.stage, data: JSON.stringify(event) };
    return this.write([row], structuredClone(this.progress));
  }

  /** Writes rows together with where they end and what they say, so that a successor goes on from all three. */
  output(
    decoder: OutputDecoder,
    rows: readonly NewLogRow[],
    outcome: OutcomeTracker,
  ): Promise<void> {
    outcome.take(rows);
    this.at = decoder.position();
    this.progress = { ...this.progress, outcome: outcome.state() };
    return this.write(rows, this.progress);
  }

  /** Resolves when everything is committed. */
  flush(): Promise<void> {
    return this.write([], this.progress);
  }

  private write(rows: readonly NewLogRow[], progress: TurnProgress): Promise<void> {
    // The writer serves all turns: it must not take one's context for its own.
    const written = outsideWork(() => this.log.write(rows, this.at, progress));
    written.catch(this.onFailure);
    return written;
  }
}
