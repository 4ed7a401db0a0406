import {
  type BeforeApplicationShutdown,
  Injectable,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import { Metrics } from '../metrics/metrics.js';
import { StreamFigures } from './stream-figures.js';
import type { EventStream } from './event-stream.js';

const SLOW_MS = 1_000;
const LAST_FRAMES_LIMIT_MS = 2_000;

/** The streams that are open in this process: one timer for all their heartbeats, and their end at shutdown. */
@Injectable()
export class StreamRegistry implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly streams = new Set<EventStream>();
  private timer: NodeJS.Timeout | undefined;
  private closing = false;
  /** The last stream has gone. */
  private empty: (() => void) | undefined;
  readonly figures = new StreamFigures();

  constructor(
    private readonly config: AppConfig,
    metrics: Metrics,
  ) {
    metrics.gauge('open_streams', 'Streams that are open in this process', () => this.streams.size);
    metrics.gauge(
      'slow_streams',
      'Open streams whose client has taken nothing for a second although there is more',
      () => this.slow(),
    );
    metrics.total('stream_events', 'Events sent to clients', () => this.figures.events);
    metrics.total('stream_bytes', 'Bytes sent to clients in streams', () => this.figures.bytes);
    metrics.total(
      'stream_pauses',
      'Times that a stream waited for its client',
      () => this.figures.pauses,
    );
  }

  private slow(): number {
    const limit = performance.now() - SLOW_MS;
    let slow = 0;
    for (const { pausedSince } of this.streams) {
      if (pausedSince !== undefined && pausedSince < limit) slow += 1;
    }
    return slow;
  }

  onApplicationBootstrap(): void {
    const intervalMs = this.config.heartbeatSeconds * 1000;
    this.timer = setInterval(
      () => {
        const due = performance.now() - intervalMs;
        for (const stream of this.streams) if (stream.lastSentAt <= due) stream.beat();
      },
      Math.min(1_000, intervalMs / 4),
    );
  }

  async beforeApplicationShutdown(): Promise<void> {
    this.closing = true;
    clearInterval(this.timer);
    for (const stream of this.streams) stream.endNow();
    if (this.streams.size === 0) return;
    // What is on its way to a client that reads arrives; one that does not read is not waited for.
    await new Promise<void>((resolve) => {
      const limit = setTimeout(resolve, LAST_FRAMES_LIMIT_MS);
      this.empty = () => {
        clearTimeout(limit);
        resolve();
      };
    });
  }

  add(stream: EventStream): void {
    this.streams.add(stream);
    if (this.closing) stream.endNow();
  }

  remove(stream: EventStream): void {
    this.streams.delete(stream);
    if (this.streams.size === 0) this.empty?.();
  }
}
