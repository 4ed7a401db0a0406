import { duration, firstLine } from '../command-line.js';
import { type Diagnosis, fail, type Finding, ok, skip, warn } from './finding.js';
import {
  type StreamMeasures,
  TICKS,
  measureStream,
  ProbeRefused,
  ProbeSession,
} from './measure-stream.js';

const LATE_MS = 1_000;
const MUCH_TOO_LATE_MS = 2_500;

const UNBUFFER =
  'switch off response buffering for /sessions/*/stream in the proxies; nginx follows the header X-Accel-Buffering: no of the service unless proxy_ignore_headers disables that (docs/operating.md)';

/** Judges the network path to the service by the measurements of a stream. */
export function judgeStream(measures: StreamMeasures): Finding[] {
  const { status, contentType, cutAfterMs } = measures;
  if (status !== 200 && cutAfterMs !== null && status !== 0) {
    return [
      {
        check: 'stream',
        ...fail(
          `The request of the stream returned ${status}`,
          'check the proxies between this host and the service',
        ),
      },
    ];
  }
  if (status === 200 && !contentType.startsWith('text/event-stream')) {
    return [
      {
        check: 'stream',
        ...fail(
          `The stream has the content type ${contentType || '(none)'}`,
          'a proxy on the way answers instead of the service',
        ),
      },
    ];
  }
  return [
    { check: 'buffering', ...buffering(measures) },
    { check: 'compression', ...compression(measures) },
    { check: 'silence', ...silence(measures) },
    { check: 'resumption', ...resumption(measures) },
  ];
}

function isHeldBack({ firstEventMs, delayMs }: StreamMeasures): boolean {
  return firstEventMs === null || Math.max(firstEventMs, delayMs) > MUCH_TOO_LATE_MS;
}

function buffering(measures: StreamMeasures): Diagnosis {
  const { firstEventMs, delayMs, ticks, endMs, cutAfterMs } = measures;
  if (firstEventMs === null) {
    return fail('No event of the stream arrived: all are held back', UNBUFFER);
  }
  const heldMs = Math.max(firstEventMs, delayMs);
  if (isHeldBack(measures)) {
    return fail(
      `Events are held back for up to ${duration(heldMs)} and then arrive together`,
      UNBUFFER,
    );
  }
  if (ticks < TICKS) {
    return fail(
      `${ticks} of ${TICKS} lines arrived`,
      'see the other findings, and look for the session in the log of the service',
    );
  }
  const said = `Events arrive as they are written: the first after ${duration(firstEventMs)}, none more than ${duration(delayMs)} later than others`;
  if (heldMs > LATE_MS || (endMs === null && cutAfterMs === null)) {
    return warn(said, 'unless the network is slow, a proxy on the way buffers events');
  }
  return ok(said);
}

function compression({ contentEncoding }: StreamMeasures): Diagnosis {
  return contentEncoding === 'identity'
    ? ok('Streams are not compressed')
    : warn(
        `A proxy on the way compresses streams (${contentEncoding})`,
        'exclude text/event-stream from compression: it delays events unless each is flushed, and some clients cannot read it',
      );
}

function silence(measures: StreamMeasures): Diagnosis {
  const { heartbeats, cutAfterMs, survivedMs } = measures;
  if (cutAfterMs !== null) {
    return fail(
      `The connection was cut after ${duration(cutAfterMs)} without an event`,
      'raise the read or idle timeout of the proxies above the interval of heartbeats, HEARTBEAT_SECONDS (15): nginx proxy_read_timeout, HAProxy timeout server and timeout tunnel',
    );
  }
  if (isHeldBack(measures)) return skip('events are held back, and so are heartbeats');
  if (heartbeats === 0) {
    return fail(
      'No heartbeat came',
      'if HEARTBEAT_SECONDS is long, use a longer --silence; otherwise a proxy on the way drops them',
    );
  }
  return ok(
    `Heartbeats arrive: ${heartbeats} while the session was silent; the longest time without one was ${duration(survivedMs)}`,
  );
}

function resumption({ resumed }: StreamMeasures): Diagnosis {
  if (resumed === null) return skip('there was no event to resume after');
  return resumed
    ? ok('A stream resumes after Last-Event-ID')
    : fail(
        'Last-Event-ID has no effect: the stream starts from the beginning',
        'let the proxies pass that request header; clients can send ?since= instead',
      );
}

/** How many seconds after the silence the probe ends by itself. */
const MARGIN_SECONDS = 300;

export interface StreamCheckOptions {
  url: string;
  token: string;
  silenceSeconds: number;
  holdSeconds: number;
}

/** Runs a session through the address, measures how its stream arrives, and deletes the session. */
export async function checkStream(options: StreamCheckOptions): Promise<Finding[]> {
  const { url, token, silenceSeconds, holdSeconds } = options;
  try {
    const timeout = Math.ceil(Math.max(silenceSeconds, holdSeconds)) + MARGIN_SECONDS;
    const session = await ProbeSession.start(url, token, timeout);
    try {
      const measures = await measureStream(session, {
        silenceMs: silenceSeconds * 1000,
        holdMs: holdSeconds * 1000,
      });
      return judgeStream(measures);
    } finally {
      await session.remove();
    }
  } catch (error) {
    return [{ check: 'stream', ...fail(reasonOf(url, error), adviceFor(error)) }];
  }
}

function reasonOf(url: string, error: unknown): string {
  if (error instanceof ProbeRefused) return error.message;
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return `${url}: ${firstLine(cause)}`;
}

function adviceFor(error: unknown): string {
  if (!(error instanceof ProbeRefused)) return 'check the address, and that the service runs';
  if (error.status === 401)
    return 'use a valid token; a proxy on the way may also remove the header Authorization';
  if (error.status === 404) return 'check the address; it must include API_PREFIX';
  if (error.status === 429) return 'use a token of a user who is below their session limit';
  return 'follow the advice in the message';
}
