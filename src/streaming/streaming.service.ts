import { Injectable } from '@nestjs/common';
import { notFound } from '../common/errors.js';
import { AppConfig } from '../config/app-config.js';
import { FeedHub } from '../event-log/feed-hub.js';
import { StreamStates } from '../sessions/stream-states.repository.js';
import { EventStream } from './event-stream.js';
import { StreamRegistry } from './stream-registry.service.js';

/** Opens streams. */
@Injectable()
export class StreamingService {
  constructor(
    private readonly states: StreamStates,
    private readonly hub: FeedHub,
    private readonly registry: StreamRegistry,
    private readonly config: AppConfig,
  ) {}

  /** @throws Refusal 404. */
  async open(userId: string, sessionId: string, cursor: number): Promise<EventStream> {
    const start = await this.states.connect(userId, sessionId, cursor);
    if (!start) throw notFound('Session not found');
    const stream = new EventStream({
      sessionId,
      cursor,
      start,
      staleAfterSeconds: this.config.staleAfterSeconds,
      join: (listener) => this.hub.join(sessionId, listener),
      leave: (feed, listener) => this.hub.leave(feed, listener),
      figures: this.registry.figures,
      state: () => this.states.ofTurnUnscoped(sessionId, start.turn),
    });
    this.registry.add(stream);
    return stream;
  }
}
