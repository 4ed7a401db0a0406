import { setTimeout as delay } from 'node:timers/promises';
import { MESSAGE_FILL, pacedScript } from '../lib/messages.mjs';
import { ResumingReader } from './resuming-reader.mjs';

/** Sized for about half the capacity of two cores. Starting sandboxes uses most of it. */
const TALKERS = 10;
const TALK_INTERVAL_MS = 50;
const TALK_SECONDS = 15;
const TURNS_EACH = 3;
const SHORT_EVERY_MS = 800;
const BURST_EVERY_MS = 15_000;
const BURST_MESSAGES = 20_000;
const REPLAYS = 3;
const LOOK_EVERY_MS = 250;

/**
 * The load of a busy service: sessions of several turns with permanent and intermittent readers, short sessions,
 * sessions with much output and slow readers or replays, and clients that list resources.
 */
export class Load {
  accounted = 0;
  counting = new Set();
  sessions = 0;
  resumed = 0;
  problems = [];
  open = new Set();
  readers = new Set();
  stopping = false;

  constructor(service) {
    this.service = service;
  }

  /**
   * The messages that the readers of all sessions received, counting each message once. It counts messages instead of
   * events, because messages that were printed in a burst share an event.
   */
  get messages() {
    return [...this.counting].reduce((sum, { check }) => sum + check.messages, this.accounted);
  }

  start() {
    const loops = [
      ...Array.from({ length: TALKERS }, (_, at) =>
        this.repeat(() => this.talk(), (at * TALK_SECONDS * 1000) / TALKERS),
      ),
      this.repeat(() => this.every(SHORT_EVERY_MS, () => this.speakShortly())),
      this.repeat(() => this.every(BURST_EVERY_MS, () => this.burst())),
      this.repeat(() => this.every(LOOK_EVERY_MS, () => this.lookAround())),
    ];
    this.ended = Promise.all(loops);
  }

  /** Waits for the first message. @throws Error if none arrives in this time */
  async flows(limitMs) {
    const giveUpAt = performance.now() + limitMs;
    while (this.messages === 0) {
      if (performance.now() > giveUpAt)
        throw new Error(['no message arrived', ...this.problems.slice(0, 3)].join('; '));
      await delay(50);
    }
  }

  /** Ends running sessions like a client. */
  async stop() {
    this.stopping = true;
    for (const reader of this.readers) reader.hangUp?.();
    await Promise.all([...this.open].map((id) => this.endSession(id).catch(() => undefined)));
    await this.ended;
    await Promise.all([...this.open].map((id) => this.endSession(id)));
  }

  async repeat(what, afterMs = 0) {
    await this.wait(afterMs);
    while (!this.stopping) {
      try {
        await what();
      } catch (error) {
        // Errors during the shutdown do not count.
        if (!this.stopping) this.problems.push(error.message);
        await this.wait(1_000);
      }
    }
  }

  /** Repeats at this interval in milliseconds, or without a pause if it takes longer. */
  async every(ms, what) {
    const next = performance.now() + ms;
    await what();
    await this.wait(next - performance.now());
  }

  async wait(ms) {
    const end = performance.now() + ms;
    while (!this.stopping && performance.now() < end)
      await delay(Math.max(1, Math.min(200, end - performance.now())));
  }

  async begin(prompt) {
    const id = await this.service.run(prompt);
    this.open.add(id);
    this.sessions += 1;
    return id;
  }

  async endSession(id) {
    await this.service.post(`/sessions/${id}/terminate`);
    this.open.delete(id);
  }

  /**
   * Runs a session from its first prompt to its end, with its readers.
   * @param use is called with its id and a function that creates readers; one reader of each session counts messages.
   */
  async session(prompt, use) {
    const id = await this.begin(prompt);
    const own = [];
    const reader = ({ counts = false } = {}) => {
      const made = new ResumingReader((headers) => this.service.stream(id, headers));
      own.push(made);
      this.readers.add(made);
      if (counts) this.counting.add(made);
      return made;
    };
    try {
      await use({ id, reader });
    } finally {
      for (const one of own) this.leave(one);
      if (!this.stopping) await this.endSession(id);
    }
  }

  leave(reader) {
    if (this.counting.delete(reader)) this.accounted += reader.check.messages;
    this.readers.delete(reader);
  }

  /** Several turns, with one permanent reader and one that leaves in the middle and comes back. */
  async talk() {
    const count = (TALK_SECONDS * 1000) / TALK_INTERVAL_MS;
    const script = (turn) =>
      pacedScript({ count, intervalMs: TALK_INTERVAL_MS, from: 1 + turn * count });
    await this.session(script(0), async ({ id, reader }) => {
      const [steady, restless] = [reader({ counts: true }), reader()];
      for (let turn = 0; turn < TURNS_EACH && !this.stopping; turn += 1) {
        if (turn > 0) await this.service.post(`/sessions/${id}/prompt`, { prompt: script(turn) });
        await Promise.all([steady.read(), this.comeAndGo(restless)]);
        this.expect(steady, (turn + 1) * count);
        this.expect(restless, (turn + 1) * count);
      }
    });
  }

  async comeAndGo(reader) {
    while (!(await reader.read({ forMs: 500 + Math.random() * 3_000 })) && !this.stopping) {
      this.resumed += 1;
      await this.wait(Math.random() * 600);
    }
  }

  async speakShortly() {
    await this.session('echo "@s=1 "', async ({ reader }) => {
      const only = reader({ counts: true });
      await only.read();
      this.expect(only, 1);
    });
  }

  /** Much output at once, for a reader that starts slowly, and a replay for some that come later. */
  async burst() {
    const line = `echo "@s=$n ${MESSAGE_FILL.slice(0, 130)}"`;
    const script = `for ((n = 1; n <= ${BURST_MESSAGES}; n++)); do ${line}; done`;
    await this.session(script, async ({ reader }) => {
      const slow = reader({ counts: true });
      await slow.read({ pauseMs: 3_000 });
      this.expect(slow, BURST_MESSAGES);
      for (let times = 0; times < REPLAYS && !this.stopping; times += 1) {
        const again = reader();
        await again.read();
        this.expect(again, BURST_MESSAGES);
      }
    });
  }

  async lookAround() {
    const [id] = this.open;
    if (id !== undefined) await this.service.get(`/sessions/${id}`);
    await this.service.get(`/agents/${this.service.agentId}`);
  }

  expect(reader, messages) {
    if (this.stopping || reader.check.last === messages) return;
    throw new Error(`a reader had ${reader.check.last} of ${messages} messages`);
  }
}
