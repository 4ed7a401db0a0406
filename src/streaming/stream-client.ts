import type { ServerResponse } from 'node:http';
import type { Writable } from 'node:stream';

/** Counters of a process's streams. Plain numbers, so that counting is cheap. */
export class StreamStats {
  /** Events that were written to connections, without heartbeats. */
  events = 0;
  bytes = 0;
  /** How often a stream paused because its client did not read fast enough. */
  pauses = 0;
}

/** A response, or another stream to write to. */
export type Output = Writable & Partial<Pick<ServerResponse, 'setTimeout'>>;

/** The client of one stream: counts what is sent to it, and waits until it has read that. */
export class StreamClient {
  /** When the client's buffers became full, if they still are; by the monotonic clock, milliseconds. */
  pausedSince: number | undefined;
  /** When something was last sent; by the monotonic clock, milliseconds. */
  lastSentAt = 0;
  /** Ends the current pause. */
  private resume: (() => void) | undefined;
  private stopped = false;

  /** @param stallMs a client that reads nothing for this long is disconnected; 0: never. */
  constructor(
    private readonly out: Output,
    private readonly stats: StreamStats,
    private readonly stallMs: number,
  ) {}

  /** Has everything that was sent so far left this process? */
  get isUpToDate(): boolean {
    return this.out.writableLength === 0;
  }

  /** @param events how many events the data holds, for the stats. */
  send(data: string | Buffer, events: number): void {
    this.stats.events += events;
    this.stats.bytes += typeof data === 'string' ? Buffer.byteLength(data) : data.length;
    this.lastSentAt = performance.now();
    this.out.write(data);
  }

  /** Waits until there is room in the client's buffers again, or until the stream stops. */
  async untilTaken(): Promise<void> {
    const { out } = this;
    if (!out.writableNeedDrain) return;
    // Often the system accepts everything at once. Waiting for that also lets other streams send in between.
    await new Promise(setImmediate);
    if (!out.writableNeedDrain || this.stopped) return;
    this.pausedSince = performance.now();
    this.stats.pauses += 1;
    // Node disconnects the client if it reads nothing at all of the buffered data during this time.
    out.setTimeout?.(this.stallMs);
    out.once('drain', () => this.resume?.());
    await this.pause();
    if (!this.stopped) out.setTimeout?.(0);
    this.pausedSince = undefined;
  }

  /** Waits for the given time, or until the stream stops. */
  async pause(limitMs?: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = limitMs === undefined ? undefined : setTimeout(resolve, limitMs);
      this.resume = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.resume = undefined;
  }

  /** Ends the current pause, because the stream is over. */
  stop(): void {
    this.stopped = true;
    this.resume?.();
  }

  /** Ends the response. A client that does not read the rest of it in time is disconnected. */
  end(): void {
    this.out.setTimeout?.(this.stallMs);
    this.out.end();
  }

  /** Disconnects the client. */
  destroy(error: Error): void {
    this.out.destroy(error);
  }
}
