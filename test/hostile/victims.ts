import { setTimeout as delay } from 'node:timers/promises';
import { ask } from '../faults/http.js';
import { type StreamEvent, StreamReader } from '../faults/stream-reader.js';
import { Samples, type Summary } from './samples.js';
import { OVER, printedAt, verifyVictim, victimScript } from './victim-script.js';

/** How soon sessions that are terminated have to end. */
const FINISH_LIMIT_MS = 20_000;

export interface VictimsOptions {
  url: string;
  token: string;
  sessions: number;
  /** When the sessions stop printing unless they are told to before; milliseconds since the epoch. */
  endAt: number;
  /** Between the starts of two short sessions. */
  newSessionEveryMs: number;
  /** How soon such a session has to print. */
  newSessionLimitMs: number;
}

export interface VictimsMeasured {
  /** From a line's printing to its arrival; milliseconds. */
  latency: Summary;
  /** From the request for a session to its first output; milliseconds. */
  start: Summary;
  started: number;
  failed: string[];
}

export interface VictimsVerified {
  readers: number;
  lines: number;
  lost: number;
  repeated: number;
  reordered: number;
  problems: string[];
}

/** The user that is to notice nothing: long sessions with readers that verify every line, and short ones all the time. */
export class Victims {
  private readonly options: VictimsOptions;
  private readonly latency = new Samples();
  private readonly starts = new Samples();
  private readonly failures: { at: number; why: string }[] = [];
  private readonly stop = new AbortController();
  /** Ends the long sessions' readers. */
  private readonly giveUp = new AbortController();
  private readonly verified: VictimsVerified = {
    readers: 0,
    lines: 0,
    lost: 0,
    repeated: 0,
    reordered: 0,
    problems: [],
  };
  private readonly readers: Promise<void>[] = [];
  private readonly ids: string[] = [];
  private starting: Promise<void> = Promise.resolve();
  private agentId = '';
  private lastLineAt = 0;

  constructor(options: VictimsOptions) {
    this.options = options;
  }

  /** Resolves when every session prints. */
  async start(): Promise<void> {
    const agent = { name: 'victim', provider: 'shell', model: 'shell/bash' };
    this.agentId = String((await this.request('POST', '/agents', agent, 201))['id']);
    const printing = Array.from({ length: this.options.sessions }, async () => {
      const id = await this.create(victimScript(this.options.endAt), this.stop.signal);
      this.ids.push(id);
      await new Promise<void>((resolve) => {
        this.readers.push(this.follow(id, undefined, resolve));
        // This one hangs up again and again, and has to get everything all the same.
        this.readers.push(this.follow(id, () => 700 + Math.random() * 3_000));
      });
    });
    await Promise.all(printing);
    this.starting = this.startSessions();
  }

  measure({ from, to }: { from: number; to: number }): VictimsMeasured {
    const start = this.starts.summary(from, to);
    const failed = this.failures.filter(({ at }) => at >= from && at < to).map(({ why }) => why);
    return { latency: this.latency.summary(from, to), start, started: start.count, failed };
  }

  /** For how long no session has printed anything that arrived; milliseconds. */
  silence(): number {
    return Date.now() - this.lastLineAt;
  }

  /** No new sessions from now on. */
  async calm(): Promise<void> {
    this.stop.abort();
    await this.starting;
  }

  /** Tells the long sessions to print their last line and end, or terminates them. */
  async finish({ cutShort }: { cutShort: boolean }): Promise<VictimsVerified> {
    await this.calm();
    if (cutShort) {
      setTimeout(() => this.giveUp.abort(new Error('no end')), FINISH_LIMIT_MS);
      await Promise.all(
        this.ids.map((id) =>
          this.request('POST', `/sessions/${id}/terminate`).catch(() => undefined),
        ),
      );
    } else {
      const path = `files/content?path=${OVER}`;
      // A session that cannot be told ends by the clock.
      await Promise.all(
        this.ids.map((id) => this.request('PUT', `/sessions/${id}/${path}`).catch(() => undefined)),
      );
    }
    await Promise.all(this.readers);
    return this.verified;
  }

  private async follow(
    id: string,
    patience?: () => number,
    onPrinting?: () => void,
  ): Promise<void> {
    const { url, token, endAt } = this.options;
    const { verified } = this;
    verified.readers += 1;
    const limit = AbortSignal.timeout(Math.max(0, endAt - Date.now()) + 60_000);
    const signal = AbortSignal.any([limit, this.giveUp.signal]);
    let begun = '';
    const onEvent = ({ type, data = '' }: StreamEvent): void => {
      if (type !== 'output') return;
      const now = Date.now();
      const lines = (begun + data).split('\n');
      begun = lines.pop() ?? '';
      for (const line of lines) {
        const at = printedAt(line);
        if (at !== undefined) this.latency.add(at, now - at);
      }
      this.lastLineAt = now;
      onPrinting?.();
    };
    const reader = new StreamReader({
      sessionId: id,
      token,
      base: () => url,
      patience: patience ?? (() => undefined),
      signal,
      // Only who stays is measured: the other one gets lines late because it was away.
      ...(patience === undefined && { onEvent }),
    });
    try {
      const terminal = await reader.read();
      const whole = terminal.type === 'exit';
      if (!whole && terminal.type !== 'terminated')
        verified.problems.push(`session ${id} ended with ${JSON.stringify(terminal)}`);
      this.judge(id, reader.events, whole);
    } catch (error) {
      verified.problems.push(`session ${id}: ${String(error)}`);
      this.judge(id, reader.events, false);
      onPrinting?.();
    }
  }

  private judge(id: string, events: readonly StreamEvent[], whole: boolean): void {
    const { lost, repeated, reordered, notes } = verifyVictim(events, whole);
    this.verified.lines += events.reduce(
      (lines, { data = '' }) => lines + data.split('\n').length - 1,
      0,
    );
    this.verified.lost += lost;
    this.verified.repeated += repeated;
    this.verified.reordered += reordered;
    this.verified.problems.push(...notes.map((note) => `session ${id}, ${note}`));
  }

  private async startSessions(): Promise<void> {
    const { newSessionEveryMs } = this.options;
    const running = new Set<Promise<void>>();
    while (!this.stop.signal.aborted) {
      const one = this.oneSession().finally(() => running.delete(one));
      running.add(one);
      await delay(newSessionEveryMs, undefined, { signal: this.stop.signal }).catch(
        () => undefined,
      );
    }
    await Promise.all(running);
  }

  private async oneSession(): Promise<void> {
    const { url, token, newSessionLimitMs } = this.options;
    const begun = Date.now();
    const signal = AbortSignal.timeout(newSessionLimitMs);
    let id: string | undefined;
    try {
      id = await this.create('echo started', signal);
      let printed: number | undefined;
      const terminal = await new StreamReader({
        sessionId: id,
        token,
        base: () => url,
        patience: () => undefined,
        signal,
        onEvent: ({ type }) => {
          if (type === 'output') printed ??= Date.now();
        },
      }).read();
      if (terminal.type !== 'exit' || printed === undefined)
        throw new Error(`it ended with ${JSON.stringify(terminal)}`);
      this.starts.add(begun, printed - begun);
    } catch (error) {
      const late = signal.aborted ? `no output within ${newSessionLimitMs / 1000} s` : '';
      this.failures.push({ at: begun, why: late || String(error) });
    }
    if (id === undefined) return;
    await this.request('POST', `/sessions/${id}/terminate`).catch(() => undefined);
    await this.request('DELETE', `/sessions/${id}/delete`).catch(() => undefined);
  }

  private async create(prompt: string, signal: AbortSignal): Promise<string> {
    signal.throwIfAborted();
    const timeout = Math.ceil(Math.max(60_000, this.options.endAt - Date.now() + 60_000) / 1000);
    const body = { agent_id: this.agentId, prompt, timeout };
    return String((await this.request('POST', '/sessions', body, 202))['id']);
  }

  private async request(
    method: string,
    path: string,
    body?: object,
    wanted?: number,
  ): Promise<Record<string, unknown>> {
    const { url, token } = this.options;
    const answer = await ask(url + path, { method, token, body, timeoutMs: 30_000 });
    if (wanted !== undefined && answer.status !== wanted)
      throw new Error(`${method} ${path}: ${answer.status} ${answer.text.slice(0, 300)}`);
    return answer.body;
  }
}
