import { EventLogRepository, type LogRow } from './event-log.repository.js';
import { type Block, blockAfter, blocksOf } from './frames.js';
import { LogTail, TailMemory } from './log-tail.js';
import { Injectable, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common';
import { Notifier } from './log-notifications.js';

/** The approximate size of one read in bytes. Bounds the memory of a stream. */
const PAGE_BYTES = 256 * 1024;
/** The number of events in one read; far more than a page of framed rows has. */
const PAGE_ROWS = 1000;

/** Notifications for a stream: there are new events, or the session's state may have changed. */
export interface FeedListener {
  wake(stateChanged: boolean): void;
}

/**
 * One session's log for all streams of this process. Reads by cursor, from the shared tail if it covers the cursor,
 * otherwise from the database. Rows of other processes are read once instead of once for each stream.
 */
export class SessionFeed {
  private readonly listeners = new Set<FeedListener>();
  private tail: LogTail | undefined;
  /** Counts notifications, so that a read that found nothing can tell whether that is still valid. */
  private arrivals = 0;
  /** Other processes may have written rows after the tip. */
  private stale = false;
  private catchingUp: Promise<void> | undefined;
  private closed = false;

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

  /** The last reader has left. */
  close(): void {
    this.closed = true;
    this.tail?.close();
    this.tail = undefined;
  }

  /** This process committed rows; `after` is the id of the row before them. */
  committed(after: number, rows: readonly LogRow[]): void {
    if (this.closed) return;
    this.arrivals += 1;
    this.tail ??= new LogTail(this.memory, after);
    this.tail.append(after, blocksOf(rows));
    this.wake(false);
  }

  /** Another process committed rows, or may have. */
  grown(): void {
    this.arrivals += 1;
    this.stale = true;
    this.wake(false);
  }

  /**
   * The session or a turn changed state, or may have. The notification of earlier rows of other processes may be late,
   * so a caller that reads the state uses {@link expect} to say how far the log reaches.
   */
  changed(): void {
    this.arrivals += 1;
    this.wake(true);
  }

  /** The log reaches up to this row at least, even if its notification has not arrived yet. */
  expect(lastId: number): void {
    if (this.tail && this.tail.tip < lastId) this.stale = true;
  }

  /** Reads the events after the cursor, oldest first. An empty result means that there are none at the moment. */
  async read(cursor: number): Promise<readonly Block[]> {
    for (;;) {
      if (this.closed) return [];
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
      if (arrivals === this.arrivals && !this.closed) {
        this.tail ??= new LogTail(this.memory, cursor);
        this.stale = false;
        return [];
      }
    }
  }

  /** Reads rows of other processes into the tail: one read, however many streams wait for it. */
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
    while (!this.closed) {
      const after = tail.tip;
      const rows = await this.page(after);
      tail.append(after, blocksOf(rows));
      // Counts bytes in the same way as the database, so that a page that was cut by its size is not mistaken for the
      // last one.
      const bytes = rows.reduce((sum, { data }) => sum + Buffer.byteLength(data), 0);
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

/** The feeds of the sessions that have a reader in this process. */
@Injectable()
export class FeedHub implements OnModuleInit, OnApplicationShutdown {
  private readonly feeds = new Map<string, SessionFeed>();
  private readonly memory = new TailMemory();
  private readonly subscriptions: (() => void)[] = [];

  constructor(
    private readonly notifier: Notifier,
    private readonly log: EventLogRepository,
  ) {}

  onModuleInit(): void {
    this.subscriptions.push(
      this.notifier.on('log.committed', ({ sessionId, after, rows }) =>
        this.feeds.get(sessionId)?.committed(after, rows),
      ),
      this.notifier.on('log.grown', ({ sessionId }) => this.feeds.get(sessionId)?.grown()),
      this.notifier.on('session.changed', ({ sessionId }) => this.feeds.get(sessionId)?.changed()),
      this.notifier.on('notifications.missed', () => {
        for (const feed of this.feeds.values()) feed.changed();
      }),
    );
  }

  onApplicationShutdown(): void {
    for (const end of this.subscriptions) end();
  }

  /** From now on, `listener` is notified of every change of the session. */
  join(sessionId: string, listener: FeedListener): SessionFeed {
    let feed = this.feeds.get(sessionId);
    if (!feed) {
      feed = new SessionFeed(sessionId, this.log, this.memory);
      this.feeds.set(sessionId, feed);
    }
    feed.add(listener);
    return feed;
  }

  leave(feed: SessionFeed, listener: FeedListener): void {
    feed.remove(listener);
    if (feed.size === 0 && this.feeds.get(feed.sessionId) === feed) {
      this.feeds.delete(feed.sessionId);
      feed.close();
    }
  }
}
