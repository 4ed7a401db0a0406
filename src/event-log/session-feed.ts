import type { EventLogRepository } from './event-log.repository.js';
import { type Block, blockAfter, blocksOf } from './frames.js';
import { LogTail, type TailMemory } from './log-tail.js';
import type { LogRow } from './log-row.js';

/** About what one read hands out; bounds the memory of a stream. Bytes. */
const PAGE_BYTES = 256 * 1024;
/** Of single events; far more than make a page of framed rows. */
const PAGE_ROWS = 1000;

/** What a stream that followed a feed is told: there is something new, or the state has to be looked at again. */
export interface FeedListener {
  wake(stateChanged: boolean): void;
}

/**
 * One session's log as all streams of this process read it: by cursor, from the shared tail where that covers it, else
 * from the database. Rows of other processes are read once, not once for each stream.
 */
export class SessionFeed {
  private readonly listeners = new Set<FeedListener>();
  private tail: LogTail | undefined;
  /** Counts what arrived, so that a read that found nothing can tell whether it still holds. */
  private arrivals = 0;
  /** There may be rows after the tip that this process did not write. */
  private stale = false;
  private catchingUp: Promise<void> | undefined;

  constructor(
    readonly sessionId: string,
    private readonly log: EventLogRepository,
    private readonly memory: TailMemory,
  ) {}

  get size(): number {
    return this.listeners.size;
  }

  add(listener: FeedListener): void {
    this.listeners.add(listener);
  }

  remove(listener: FeedListener): void {
    this.listeners.delete(listener);
  }

  /** Nobody reads it any more. */
  close(): void {
    this.tail?.close();
  }

  /** Rows that this process committed; `after` is the id of the row before them. */
  committed(after: number, rows: readonly LogRow[]): void {
    this.arrivals += 1;
    this.tail ??= new LogTail(this.memory, after);
    this.tail.append(after, blocksOf(rows));
    this.wake(false);
  }

  /** Another process committed rows, or may have. */
  rang(): void {
    this.arrivals += 1;
    this.stale = true;
    this.wake(false);
  }

  /** The session or a turn changed state; rows of other processes that came before may not have been heard of yet. */
  changed(): void {
    this.arrivals += 1;
    this.stale = true;
    this.wake(true);
  }

  /** The log is known to reach up to this row, even if the news of it has not come in yet. */
  expect(lastId: number): void {
    if (this.tail && this.tail.tip < lastId) this.stale = true;
  }

  /** What comes after the cursor, oldest first; nothing means that there is nothing after it now. */
  async read(cursor: number): Promise<readonly Block[]> {
    for (;;) {
      const tail = this.tail;
      if (tail?.covers(cursor)) {
        const blocks = tail.after(cursor, PAGE_BYTES);
        if (blocks.length > 0 || !(this.stale || this.catchingUp)) return blocks;
        await this.catchUp(tail);
        continue;
      }
      const arrivals = this.arrivals;
      const [begin, ...rest] = blocksOf(await this.page(cursor));
      if (begin) return [blockAfter(begin, cursor), ...rest];
      if (arrivals === this.arrivals) {
        this.tail ??= new LogTail(this.memory, cursor);
        this.stale = false;
        return [];
      }
    }
  }

  /** Reads what other processes wrote into the tail: one read, however many streams wait for it. */
  private async catchUp(tail: LogTail): Promise<void> {
    if (!this.catchingUp) {
      this.stale = false;
      this.catchingUp = this.readIntoTail(tail)
        .catch((error: unknown) => {
          this.stale = true;
          throw error;
        })
        .finally(() => {
          this.catchingUp = undefined;
        });
    }
    await this.catchingUp;
  }

  private async readIntoTail(tail: LogTail): Promise<void> {
    for (;;) {
      const after = tail.tip;
      const rows = await this.page(after);
      const blocks = blocksOf(rows);
      tail.append(after, blocks);
      const bytes = blocks.reduce((sum, { data }) => sum + data.length, 0);
      if (rows.length < PAGE_ROWS && bytes < PAGE_BYTES) return;
    }
  }

  private page(after: number): Promise<LogRow[]> {
    return this.log.readAfterUnscoped(this.sessionId, after, {
      rows: PAGE_ROWS,
      bytes: PAGE_BYTES,
    });
  }

  private wake(stateChanged: boolean): void {
    for (const listener of this.listeners) listener.wake(stateChanged);
  }
}
