import { setTimeout as delay } from 'node:timers/promises';
import { cursorAfter, isTerminal, readItems } from '../event-printer.js';

/** The probe's session prints this many lines at known times, and then stays silent. */
export const TICKS = 15;
export const TICK_SECONDS = 0.2;
const SCRIPT = `for i in $(seq ${TICKS}); do date +%s%3N; sleep ${TICK_SECONDS}; done; sleep 86400`;
const REQUEST_LIMIT_MS = 20_000;

/** The service rejected a request that the measurement needs. */
export class ProbeRefused extends Error {
  constructor(
    readonly what: string,
    readonly status: number,
    detail: string,
  ) {
    super(`${what} returned ${status}: ${detail}`);
  }
}

/** A session for the stream check that writes lines at known times. */
export class ProbeSession {
  private constructor(
    private readonly url: string,
    private readonly token: string,
    private readonly agentId: string,
    readonly id: string,
  ) {}

  /** @param timeout seconds after which the session ends by itself @throws ProbeRefused */
  static async start(url: string, token: string, timeout: number): Promise<ProbeSession> {
    const agent = await call(url, token, 'POST', '/agents', {
      name: 'agent-sessions doctor',
      provider: 'shell',
      model: 'shell/bash',
    });
    const session = await call(url, token, 'POST', '/sessions', {
      agent_id: agent.id,
      environment_id: null,
      prompt: SCRIPT,
      timeout,
    }).catch(async (error: unknown) => {
      await call(url, token, 'POST', `/agents/${agent.id}/archive`).catch(() => undefined);
      throw error;
    });
    return new ProbeSession(url, token, agent.id, session.id);
  }

  /** Whether the session has left the state `pending`. */
  async isRunning(): Promise<boolean> {
    const { status } = await call(this.url, this.token, 'GET', `/sessions/${this.id}`);
    return status !== 'pending';
  }

  async openStream(cursor: number, signal: AbortSignal): Promise<Response> {
    return fetch(`${this.url}/sessions/${this.id}/stream`, {
      headers: {
        authorization: `Bearer ${this.token}`,
        'accept-encoding': 'gzip, deflate, br',
        accept: 'text/event-stream',
        'last-event-id': String(cursor),
      },
      signal,
    });
  }

  async terminate(): Promise<void> {
    await call(this.url, this.token, 'POST', `/sessions/${this.id}/terminate`);
  }

  /** Deletes the session and, if possible, the agent. */
  async remove(): Promise<void> {
    await this.terminate().catch(() => undefined);
    await call(this.url, this.token, 'DELETE', `/sessions/${this.id}/delete`);
    await call(this.url, this.token, 'POST', `/agents/${this.agentId}/archive`);
  }
}

async function call(
  url: string,
  token: string,
  method: string,
  path: string,
  body?: object,
): Promise<{ id: string; status: string }> {
  const response = await fetch(url + path, {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      ...(body && { 'content-type': 'application/json' }),
    },
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(REQUEST_LIMIT_MS),
  });
  const text = await response.text();
  if (!response.ok) throw new ProbeRefused(`${method} ${path}`, response.status, detailIn(text));
  return JSON.parse(text) as { id: string; status: string };
}

function detailIn(text: string): string {
  try {
    return String((JSON.parse(text) as { detail?: unknown }).detail);
  } catch {
    return text.slice(0, 100).split('\n', 1)[0] ?? '';
  }
}

/** The `start` event is sent at once. If it takes longer than this, something delays it. */
const FIRST_LIMIT_MS = 5_000;
const TICKS_MS = TICKS * TICK_SECONDS * 1000;
/** Longer than creating the first sandbox on a host may take. */
const PROVISIONING_LIMIT_MS = 120_000;
const END_LIMIT_MS = 10_000;
const POLL_MS = 200;

/** Measurements of a stream whose content and times are known. Times are in milliseconds. */
export interface StreamMeasures {
  status: number;
  contentType: string;
  /** `identity` if the stream was not compressed. */
  contentEncoding: string;
  /** From the request to the first event, which the service sends at once; `null` if it never arrived. */
  firstEventMs: number | null;
  ticks: number;
  /** The delay of the slowest line compared with the fastest one. */
  delayMs: number;
  /** The longest silence that the connection survived. */
  survivedMs: number;
  /** Heartbeats that arrived during the silence. */
  heartbeats: number;
  /** The length of the silence after which the connection was cut; `null` if it was not cut. */
  cutAfterMs: number | null;
  /** From the termination to its event; `null` if the event did not arrive. */
  endMs: number | null;
  /** Whether `Last-Event-ID` had an effect, so that only new events arrived. `null` if it was not tried. */
  resumed: boolean | null;
}

/**
 * Reads the probe's stream: its lines, then a silence until the first heartbeat, then its end. Finally resumes after
 * the last event.
 * @param silenceMs the longest time to wait for a heartbeat.
 * @param holdMs the minimum length of the silence.
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
      // The whole stream is held back, so wait until the lines have been written.
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
  /** The delay of each line, plus the unknown difference between the two clocks. */
  readonly ticks: number[] = [];
  private readonly stopping = new AbortController();
  private lastByteAt = performance.now();
  private ended = false;
  private done: Promise<void> = Promise.resolve();

  constructor(private readonly session: ProbeSession) {}

  /** Requests the stream without waiting for the response, because a proxy may delay that, too. */
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

  /** @returns whether the condition became true before the time was over or the connection ended. */
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
      // A broken connection is expected; one that ends without a terminal event was closed by something on the way.
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

/** Reconnects after the last event and checks that no earlier event is sent again. */
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
