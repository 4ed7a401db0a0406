import { setTimeout as delay } from 'node:timers/promises';
import { cursorAfter, isTerminal, readItems } from '../follow/read-events.js';
import { type ProbeSession, TICK_SECONDS, TICKS } from './probe-session.js';

/** The `start` event is sent at once; without it after this long, something holds it back. */
const FIRST_LIMIT_MS = 5_000;
const TICKS_MS = TICKS * TICK_SECONDS * 1000;
/** Above what the first sandbox of a host may take. */
const PROVISIONING_LIMIT_MS = 120_000;
const END_LIMIT_MS = 10_000;
const POLL_MS = 200;

/** What was seen of a stream whose content and times are known. Times are milliseconds. */
export interface StreamMeasures {
  status: number;
  contentType: string;
  /** `identity` where it was not compressed. */
  contentEncoding: string;
  /** From the request to the first event, which the service sends at once; `null` if it never came. */
  firstEventMs: number | null;
  ticks: number;
  /** How much later than the fastest line the slowest one came. */
  delayMs: number;
  /** The longest time without a byte that the connection has survived. */
  survivedMs: number;
  /** Signs of life that came in the silence. */
  heartbeats: number;
  /** After how long a silence the connection was cut; `null` if it was not. */
  cutAfterMs: number | null;
  /** From the termination to its event; `null` if it did not come. */
  endMs: number | null;
  /** Whether `Last-Event-ID` arrived: only what is new came. `null` if it was not tried. */
  resumed: boolean | null;
}

/**
 * Reads the probe's stream: its lines, then a silence up to the first heartbeat, then its end; and once more from the
 * last event on.
 * @param silenceMs how long to wait for a heartbeat at most.
 * @param holdMs how long the silence lasts at least.
 */
export async function measureStream(
  session: ProbeSession,
  { silenceMs, holdMs }: { silenceMs: number; holdMs: number },
): Promise<StreamMeasures> {
  const reading = new Reading(session);
  await reading.begin();
  try {
    if (await reading.until(() => reading.firstEventMs !== null, FIRST_LIMIT_MS)) {
      await reading.until(() => reading.ticks.length >= TICKS, PROVISIONING_LIMIT_MS);
      const quietSince = performance.now();
      await reading.until(
        () => reading.heartbeats > 0 && performance.now() - quietSince >= holdMs,
        Math.max(silenceMs, holdMs),
      );
    } else {
      // All of it is held back; what counts is that it was written.
      await running(session);
      await reading.until(() => false, TICKS_MS);
    }
    const endsAt = performance.now();
    await session.terminate();
    const cut = reading.cutAfterMs;
    await reading.until(() => reading.terminal, END_LIMIT_MS);
    const endMs = reading.terminal ? performance.now() - endsAt : null;
    const resumed = reading.cursor > 0 ? await resumes(session, reading.cursor) : null;
    return {
      status: reading.status,
      contentType: reading.contentType,
      contentEncoding: reading.contentEncoding,
      firstEventMs: reading.firstEventMs,
      ticks: reading.ticks.length,
      delayMs: reading.delayMs,
      survivedMs: reading.survivedMs,
      heartbeats: reading.heartbeats,
      cutAfterMs: cut,
      endMs,
      resumed,
    };
  } finally {
    await reading.stop();
  }
}

/** One connection, read in the background. */
class Reading {
  status = 0;
  contentType = '';
  contentEncoding = 'identity';
  firstEventMs: number | null = null;
  heartbeats = 0;
  terminal = false;
  cursor = 0;
  survivedMs = 0;
  cutAfterMs: number | null = null;
  /** How much later than it was written each line came, give or take what the two clocks differ. */
  readonly ticks: number[] = [];
  private readonly stopping = new AbortController();
  private lastByteAt = performance.now();
  private ended = false;
  private done: Promise<void> = Promise.resolve();

  constructor(private readonly session: ProbeSession) {}

  /** Asks for the stream. Its answer may be held back, too, so that this does not wait for it. */
  async begin(): Promise<void> {
    this.done = this.read().catch(() => undefined);
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.done;
  }

  get delayMs(): number {
    return this.ticks.length === 0 ? 0 : Math.max(...this.ticks) - Math.min(...this.ticks);
  }

  /** @returns whether it came to that before the time was over or the connection ended. */
  async until(what: () => boolean, limitMs: number): Promise<boolean> {
    const giveUpAt = performance.now() + limitMs;
    while (!what() && !this.ended && performance.now() < giveUpAt) await delay(POLL_MS / 10);
    return what();
  }

  private async read(): Promise<void> {
    const { signal } = this.stopping;
    const askedAt = performance.now();
    try {
      const response = await this.session.openStream(0, signal);
      this.status = response.status;
      this.contentType = response.headers.get('content-type') ?? '';
      this.contentEncoding = response.headers.get('content-encoding') ?? 'identity';
      if (response.status !== 200 || response.body === null) return;
      for await (const item of readItems(this.timed(response.body))) {
        this.firstEventMs ??= performance.now() - askedAt;
        if (item === 'heartbeat') {
          this.heartbeats += 1;
          continue;
        }
        this.cursor = cursorAfter(item) ?? this.cursor;
        this.terminal ||= isTerminal(item);
        if (item.type !== 'output') continue;
        const now = Date.now();
        for (const line of item.data.split('\n'))
          if (line !== '') this.ticks.push(now - Number(line));
      }
    } finally {
      this.ended = true;
      // A connection that breaks says nothing; one that ends without a terminal event was ended by somebody else.
      if (!this.terminal && !signal.aborted) this.cutAfterMs = performance.now() - this.lastByteAt;
    }
  }

  private async *timed(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    this.lastByteAt = performance.now();
    for await (const chunk of body) {
      const now = performance.now();
      this.survivedMs = Math.max(this.survivedMs, now - this.lastByteAt);
      this.lastByteAt = now;
      yield chunk;
    }
  }
}

async function running(session: ProbeSession): Promise<void> {
  const giveUpAt = performance.now() + PROVISIONING_LIMIT_MS;
  while (!(await session.isRunning()) && performance.now() < giveUpAt) await delay(POLL_MS);
}

/** Connects again after the last event: nothing that was there before may come again. */
async function resumes(session: ProbeSession, cursor: number): Promise<boolean> {
  const response = await session.openStream(cursor, AbortSignal.timeout(END_LIMIT_MS));
  if (response.status !== 200 || response.body === null) return false;
  let repeated = false;
  for await (const item of readItems(response.body)) {
    if (item === 'heartbeat') continue;
    const { type } = item;
    if ((type === 'output' || type === 'stage') && item.id <= cursor) repeated = true;
  }
  return !repeated;
}
