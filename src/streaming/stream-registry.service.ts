import {
  type BeforeApplicationShutdown,
  Injectable,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { SchedulerRegistry } from '@nestjs/schedule';
import { AppConfig } from '../config/app-config.js';
import { Metrics } from '../metrics/metrics.js';
import type { EventStream } from './event-stream.js';
import { StreamStats } from './stream-client.js';

const SLOW_MS = 1_000;
const LAST_FRAMES_LIMIT_MS = 2_000;
const HEARTBEATS = 'stream heartbeats';

/** The streams that are open in this process: one timer for all their heartbeats, and their end at shutdown. */
@Injectable()
export class StreamRegistry implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly streams = new Set<EventStream>();
  /** The number of open or reserved streams of each user. */
  private readonly ofUser = new Map<string, number>();
  private closing = false;
  /** Called when the last stream has closed. */
  private empty: (() => void) | undefined;
  readonly stats = new StreamStats();

  constructor(
    private readonly config: AppConfig,
    private readonly scheduler: SchedulerRegistry,
    metrics: Metrics,
  ) {
    metrics.gauge('open_streams', 'Streams that are open in this process', () => this.streams.size);
    metrics.gauge(
      'slow_streams',
      'Open streams whose client has read nothing for a second although data is waiting',
      () => this.slow(),
    );
    metrics.total('stream_events', 'Events sent to clients', () => this.stats.events);
    metrics.total('stream_bytes', 'Bytes sent to clients in streams', () => this.stats.bytes);
    metrics.total(
      'stream_pauses',
      'Times that a stream waited for its client',
      () => this.stats.pauses,
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
    const beat = (): void => {
      const due = performance.now() - intervalMs;
      for (const stream of this.streams) if (stream.lastSentAt <= due) stream.beat();
    };
    this.scheduler.addInterval(HEARTBEATS, setInterval(beat, Math.min(1_000, intervalMs / 4)));
  }

  async beforeApplicationShutdown(): Promise<void> {
    this.closing = true;
    // Before the streams end: a heartbeat must not follow a stream's last event.
    if (this.scheduler.doesExist('interval', HEARTBEATS)) this.scheduler.deleteInterval(HEARTBEATS);
    for (const stream of this.streams) stream.endNow();
    if (this.streams.size === 0) return;
    // Waits until clients that read have received everything, but not for clients that do not read.
    await new Promise<void>((resolve) => {
      const limit = setTimeout(resolve, LAST_FRAMES_LIMIT_MS);
      this.empty = () => {
        clearTimeout(limit);
        resolve();
      };
    });
  }

  countOf(userId: string): number {
    return this.ofUser.get(userId) ?? 0;
  }

  /** Counts a stream before it is opened, so that concurrent requests see it. */
  reserve(userId: string): void {
    this.ofUser.set(userId, this.countOf(userId) + 1);
  }

  /** Cancels a reservation. Removing the stream does so, too. */
  release(userId: string): void {
    const left = this.countOf(userId) - 1;
    if (left > 0) this.ofUser.set(userId, left);
    else this.ofUser.delete(userId);
  }

  /** The streams of turns that no worker has taken yet, by session. */
  waiting(): Map<string, EventStream[]> {
    const waiting = new Map<string, EventStream[]>();
    for (const stream of this.streams) {
      if (!stream.isWaiting) continue;
      const others = waiting.get(stream.sessionId);
      if (others) others.push(stream);
      else waiting.set(stream.sessionId, [stream]);
    }
    return waiting;
  }

  /** Ids of the tokens that streams were opened with. */
  tokens(): string[] {
    return [...new Set([...this.streams].map(({ owner }) => owner.tokenId))];
  }

  /** Ends the streams of these tokens, because the tokens are no longer valid. */
  endOf(tokenIds: ReadonlySet<string>): void {
    for (const stream of this.streams) {
      if (tokenIds.has(stream.owner.tokenId)) stream.endNow('the access token is no longer valid');
    }
  }

  /** @param stream a stream with a reservation */
  add(stream: EventStream): void {
    this.streams.add(stream);
    if (this.closing) stream.endNow();
  }

  remove(stream: EventStream): void {
    if (this.streams.delete(stream)) this.release(stream.owner.userId);
    if (this.streams.size === 0) this.empty?.();
  }
}
