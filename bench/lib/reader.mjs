// The clients, in a separate process: they hold streams and check them during the measurement.
import { StreamCheck, nowMicros } from './messages.mjs';
import { serve, tell } from './rpc.mjs';
import { SseSocket } from './sse-socket.mjs';

const PROGRESS_MS = 5;
let streams = [];
let latencies = [];
let counting = false;
let reference;
let progress;

const decoder = () => new TextDecoder();

/** Checks every event of each stream. */
function openEach({ targets, ids }) {
  streams = targets.map((target) => {
    const check = new StreamCheck({ ids }, (text, at) => {
      if (!counting) return;
      const sent = Number.parseInt(text.slice(text.indexOf('@t=', at) + 3, at + 40), 10);
      latencies.push(nowMicros() - sent);
    });
    const text = decoder();
    const socket = new SseSocket(target, (bytes) =>
      check.take(text.decode(bytes, { stream: true })),
    );
    return { socket, check };
  });
  return Promise.all(streams.map(({ socket }) => socket.opened)).then(() => streams.length);
}

/**
 * Many readers of one stream. Only the first copy of each byte is parsed; all others must be identical. Comparing is
 * cheap compared with parsing, so that the reader is not the bottleneck.
 */
function openSame({ target, count, ids }) {
  const check = new StreamCheck({ ids });
  const text = decoder();
  reference = {
    check,
    chunks: Buffer.allocUnsafe(64 * 2 ** 20),
    base: 0,
    length: 0,
    problem: undefined,
  };
  streams = Array.from({ length: count }, () => {
    const stream = { at: 0, messagesAt: 0 };
    stream.socket = new SseSocket(target, (bytes) => {
      const known = Math.min(bytes.length, reference.length - stream.at);
      const from = stream.at - reference.base;
      if (from < 0) reference.problem ??= 'a reader fell too far behind to be compared';
      else if (known > 0 && bytes.compare(reference.chunks, from, from + known, 0, known) !== 0)
        reference.problem ??= `readers differ at byte ${stream.at}`;
      if (known < bytes.length) {
        const fresh = known > 0 ? bytes.subarray(known) : bytes;
        makeRoom(fresh.length);
        fresh.copy(reference.chunks, reference.length - reference.base);
        reference.length += fresh.length;
        check.take(text.decode(fresh, { stream: true }));
      }
      stream.at += bytes.length;
    });
    return stream;
  });
  return Promise.all(streams.map(({ socket }) => socket.opened)).then(() => streams.length);
}

function makeRoom(bytes) {
  if (reference.length - reference.base + bytes <= reference.chunks.length) return;
  const keep = Math.min(...streams.map(({ at }) => at)) - reference.base;
  reference.chunks.copyWithin(0, keep, reference.length - reference.base);
  reference.base += keep;
  if (reference.length - reference.base + bytes > reference.chunks.length)
    throw new Error('the readers drifted apart by more than can be compared');
}

function sums() {
  if (reference) {
    const share = streams.reduce((sum, { at }) => sum + at, 0) / reference.length;
    const { events, messages, last } = reference.check;
    const slowest = Math.min(...streams.map(({ at }) => at)) / reference.length;
    return { events: events * share, messages: messages * share, slowest: last * slowest };
  }
  const all = streams.map(({ check }) => check);
  const sum = (key) => all.reduce((total, check) => total + check[key], 0);
  return {
    events: sum('events'),
    messages: sum('messages'),
    slowest: Math.min(...all.map((c) => c.last)),
  };
}

function problems() {
  const found = reference
    ? [reference.problem, reference.check.problem]
    : streams.map(({ check }) => check.problem);
  return found.filter((problem) => problem !== undefined);
}

serve({
  openEach,
  openSame,
  /** Starts recording latencies, and reports progress if requested. */
  begin({ tellProgress = false } = {}) {
    latencies = [];
    counting = true;
    if (tellProgress) progress = setInterval(() => tell('progress', sums()), PROGRESS_MS);
    return { ...sums(), at: performance.now() };
  },
  look: () => ({ ...sums(), at: performance.now() }),
  end() {
    counting = false;
    clearInterval(progress);
    latencies.sort((a, b) => a - b);
    const quantile = (q) =>
      latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * q))] / 1000;
    const found = problems();
    const result = {
      ...sums(),
      at: performance.now(),
      problems: found.slice(0, 3),
      ...(latencies.length > 0 && {
        p50: quantile(0.5),
        p99: quantile(0.99),
        count: latencies.length,
      }),
    };
    latencies = [];
    return result;
  },
  close() {
    for (const { socket } of streams) socket.destroy();
    streams = [];
    reference = undefined;
  },
  /** Streams that are opened and then left idle, or not even read. */
  async hold({ targets, paused = false }) {
    const opened = [];
    for (let start = 0; start < targets.length; start += 100) {
      const batch = targets.slice(start, start + 100).map((target) => {
        const stream = { bytes: 0 };
        stream.socket = new SseSocket(target, (bytes) => {
          stream.bytes += bytes.length;
        });
        return stream;
      });
      await Promise.all(batch.map(({ socket }) => socket.opened));
      if (paused) for (const { socket } of batch) socket.pause();
      opened.push(...batch);
    }
    streams = opened;
    return opened.filter(({ socket }) => !socket.closed).length;
  },
  held: () => streams.filter(({ socket }) => !socket.closed).length,
  /**
   * Reads one stream to its end or up to a number of bytes. Checks it after the clock has stopped.
   * @returns milliseconds, bytes, messages.
   */
  async replay({ target, ids, messages, bytes: wanted = Infinity, check: checks = true }) {
    const chunks = [];
    let bytes = 0;
    const begun = performance.now();
    await new Promise((resolve, reject) => {
      const socket = new SseSocket(
        target,
        (data) => {
          if (checks) chunks.push(data);
          bytes += data.length;
          if (bytes >= wanted) resolve(socket.destroy());
        },
        resolve,
      );
      socket.opened.catch(reject);
    });
    const ms = performance.now() - begun;
    if (!checks) return { ms, bytes };
    const check = new StreamCheck({ ids });
    check.take(Buffer.concat(chunks).toString());
    if (check.problem ?? (check.messages !== messages || (ids && !check.ended)))
      throw new Error(`replay: ${check.problem ?? `${check.messages} of ${messages} messages`}`);
    return { ms, bytes };
  },
});
