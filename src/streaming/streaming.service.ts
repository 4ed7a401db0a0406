import type { ServerResponse } from 'node:http';
import { Injectable } from '@nestjs/common';
import { notFound } from '../common/errors.js';
import { AppConfig } from '../config/app-config.js';
import { FeedHub } from '../event-log/feed-hub.js';
import { StreamStates } from '../sessions/stream-states.repository.js';
import { EventStream, type StreamContext, type StreamRequest } from './event-stream.js';
import { StreamRegistry } from './stream-registry.service.js';

/** Opens streams. */
@Injectable()
export class StreamingService {
  private readonly context: StreamContext;

  constructor(
    private readonly states: StreamStates,
    private readonly registry: StreamRegistry,
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
   * Looks up what a stream begins with.
   * @throws Refusal 404.
   */
  async find(userId: string, sessionId: string, cursor: number): Promise<StreamRequest> {
    const start = await this.states.connect(userId, sessionId, cursor);
    if (!start) throw notFound('Session not found');
    return { sessionId, cursor, start };
  }

  /** Begins a stream on a response whose head is written. */
  begin(out: ServerResponse, request: StreamRequest): void {
    // A client that left while its session was looked up is not told of again.
    if (out.destroyed) return;
    const stream = new EventStream(out, this.context, request);
    stream.begin();
    this.registry.add(stream);
  }
}
