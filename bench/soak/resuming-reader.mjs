import { StreamCheck } from '../lib/messages.mjs';
import { SseSocket } from '../lib/sse-socket.mjs';

/** A client that may disconnect from a stream and resumes after the last event. No message may be missing. */
export class ResumingReader {
  check = new StreamCheck({ ids: true });
  /** @param target the argument of `SseSocket` for these headers */
  constructor(target) {
    this.target = target;
  }

  /**
   * Reads until the turn has ended, the time is over or the connection is closed.
   * @returns whether the turn has ended.
   */
  async read({ forMs = Infinity, pauseMs = 0 } = {}) {
    const { check } = this;
    check.rest = '';
    check.ended = false;
    const text = new TextDecoder();
    const headers = check.lastId > 0 ? { 'last-event-id': String(check.lastId) } : {};
    const timers = [];
    await new Promise((resolve, reject) => {
      const socket = new SseSocket(
        this.target(headers),
        (bytes) => check.take(text.decode(bytes, { stream: true })),
        // The stream has ended, but the connection would be kept alive.
        () => this.hangUp(),
      );
      this.hangUp = () => resolve(socket.destroy());
      socket.opened.catch(reject);
      if (forMs < Infinity) timers.push(setTimeout(this.hangUp, forMs));
      if (pauseMs > 0) {
        socket.pause();
        timers.push(setTimeout(() => socket.resume(), pauseMs));
      }
    }).finally(() => timers.forEach(clearTimeout));
    if (check.problem) throw new Error(`a stream was wrong: ${check.problem}`);
    return check.ended;
  }
}
