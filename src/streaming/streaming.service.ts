import type { ServerResponse } from 'node:http';
import { Injectable } from '@nestjs/common';
import { notFound } from '../common/errors.js';
import { AppConfig } from '../config/app-config.js';
import { FeedHub } from '../event-log/feed-hub.js';
import { StreamStates } from '../sessions/stream-states.repository.js';
import { EventStream, type StreamContext } from './event-stream.js';
import { StreamRegistry } from './stream-registry.service.js';

/** Opens streams. */
@Injectable()
export class StreamingService {
  private readonly context: StreamContext;

  constructor(
    private readonly registry: StreamRegistry,
    states: StreamStates,
    hub: FeedHub,
    config: AppConfig,
  ) {
    this.context = {
      hub,
      states,
      figures: registry.figures,
      staleAfterSeconds: config.staleAfterSeconds,
      closed: (stream) => registry.remove(stream),
    };
  }

  /**
   * @returns a stream that has yet to begin.
   * @throws Refusal 404.
   */
  async open(userId: string, sessionId: string, cursor: number): Promise<EventStream> {
    const stream = await EventStream.open(this.context, userId, sessionId, cursor);
    if (!stream) throw notFound('Session not found');
    return stream;
  }

  /** Begins a stream on a response whose head is written. */
  begin(stream: EventStream, out: ServerResponse): void {
    this.registry.add(stream);
    stream.begin(out);
  }
}
