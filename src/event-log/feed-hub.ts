import { Injectable, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common';
import { Doorbell } from './doorbell.js';
import { EventLogRepository } from './event-log.repository.js';
import { TailMemory } from './log-tail.js';
import { type FeedListener, SessionFeed } from './session-feed.js';

/** The feeds of the sessions that somebody in this process reads; without a reader there is none. */
@Injectable()
export class FeedHub implements OnModuleInit, OnApplicationShutdown {
  private readonly feeds = new Map<string, SessionFeed>();
  private readonly memory = new TailMemory();
  private readonly subscriptions: (() => void)[] = [];

  constructor(
    private readonly doorbell: Doorbell,
    private readonly log: EventLogRepository,
  ) {}

  onModuleInit(): void {
    this.subscriptions.push(
      this.doorbell.on('log.committed', ({ sessionId, after, rows }) =>
        this.feeds.get(sessionId)?.committed(after, rows),
      ),
      this.doorbell.on('log.rang', ({ sessionId }) => this.feeds.get(sessionId)?.rang()),
      this.doorbell.on('session.changed', ({ sessionId }) => this.feeds.get(sessionId)?.changed()),
      this.doorbell.on('bells.missed', () => {
        for (const feed of this.feeds.values()) feed.changed();
      }),
    );
  }

  onApplicationShutdown(): void {
    for (const end of this.subscriptions) end();
  }

  /** From the moment this returns, `listener` hears of everything that happens to the session. */
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
