import type { ServerResponse } from 'node:http';
import { Injectable } from '@nestjs/common';
import { notFound, streamLimitReached } from '../common/errors.js';
import { LoopTurns } from '../common/loop-turns.js';
import { STALL_MS } from '../common/lists/list-body.js';
import type { Owner } from '../common/request-decorators.js';
import { AppConfig } from '../config/app-config.js';
import { FeedHub } from '../event-log/session-feed.js';
import { StreamStates } from '../sessions/stream-states.repository.js';
import { EventStream, type StreamContext } from './event-stream.js';
import { StreamRegistry } from './stream-registry.service.js';

/** Opens streams. */
@Injectable()
export class StreamingService {
  private readonly context: StreamContext;
  private readonly streamsPerUser: number;

  constructor(
    private readonly registry: StreamRegistry,
    states: StreamStates,
    hub: FeedHub,
    config: AppConfig,
  ) {
    this.streamsPerUser = config.streamsPerUser;
    this.context = {
      hub,
      states,
      stats: registry.stats,
      turns: new LoopTurns(),
      staleAfterSeconds: config.staleAfterSeconds,
      stallMs: STALL_MS,
      closed: (stream) => registry.remove(stream),
    };
  }

  /**
   * @returns a stream with a reservation, which the caller must {@link begin} or {@link close}.
   * @throws DomainError 404; 429 if the user has too many streams.
   */
  async open(owner: Owner, sessionId: string, cursor: number): Promise<EventStream> {
    this.requirePlace(owner);
    this.registry.reserve(owner.userId);
    try {
      const stream = await EventStream.open(this.context, owner, sessionId, cursor);
      if (!stream) throw notFound('Session not found');
      return stream;
    } catch (error) {
      this.registry.release(owner.userId);
      throw error;
    }
  }

  private requirePlace({ userId, streamsPerUser }: Owner): void {
    const limit = streamsPerUser ?? this.streamsPerUser;
    const active = this.registry.countOf(userId);
    if (limit > 0 && active >= limit) throw streamLimitReached(limit, active);
  }

  /** Begins a stream on a response whose head is written. */
  begin(stream: EventStream, out: ServerResponse): void {
    this.registry.add(stream);
    stream.begin(out);
  }

  /** Ends a response without any event, for a HEAD request. */
  close(stream: EventStream, out: ServerResponse): void {
    stream.endNow();
    this.registry.release(stream.owner.userId);
    out.end();
  }
}
