import { duration } from '../output.js';
import { type Diagnosis, fail, type Finding, ok, skip, warn } from './finding.js';
import type { StreamMeasures } from './measure-stream.js';
import { TICKS } from './probe-session.js';

const LATE_MS = 1_000;
const MUCH_TOO_LATE_MS = 2_500;

const UNBUFFER =
  'switch response buffering off on the way to /sessions/*/stream; nginx obeys the X-Accel-Buffering: no of the service unless proxy_ignore_headers says otherwise (docs/operating.md)';

/** What the measures of a stream say about the way to it. */
export function judgeStream(measures: StreamMeasures): Finding[] {
  const { status, contentType, cutAfterMs } = measures;
  if (status !== 200 && cutAfterMs !== null && status !== 0) {
    return [
      {
        check: 'stream',
        ...fail(
          `The stream is answered with ${status}`,
          'see what stands between here and the service',
        ),
      },
    ];
  }
  if (status === 200 && !contentType.startsWith('text/event-stream')) {
    return [
      {
        check: 'stream',
        ...fail(
          `The stream comes as ${contentType || 'nothing'}`,
          'something on the way answers in place of the service',
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
    return fail('Not one event of a stream arrived: all are held back', UNBUFFER);
  }
  const heldMs = Math.max(firstEventMs, delayMs);
  if (isHeldBack(measures)) {
    return fail(
      `Events are held back: up to ${duration(heldMs)} late, and then many at once`,
      UNBUFFER,
    );
  }
  if (ticks < TICKS) {
    return fail(
      `${ticks} of ${TICKS} lines arrived`,
      'see the other findings, and the session in the log of the service',
    );
  }
  const said = `Events arrive as they are written: the first after ${duration(firstEventMs)}, none more than ${duration(delayMs)} later than others`;
  if (heldMs > LATE_MS || (endMs === null && cutAfterMs === null)) {
    return warn(said, 'if this is no slow network, something on the way gathers events');
  }
  return ok(said);
}

function compression({ contentEncoding }: StreamMeasures): Diagnosis {
  return contentEncoding === 'identity'
    ? ok('Streams are not compressed')
    : warn(
        `Something on the way compresses streams (${contentEncoding})`,
        'take text/event-stream out of what is compressed: it holds events back unless each is flushed, and not every client can read it',
      );
}

function silence(measures: StreamMeasures): Diagnosis {
  const { heartbeats, cutAfterMs, survivedMs } = measures;
  if (cutAfterMs !== null) {
    return fail(
      `The connection was cut after ${duration(cutAfterMs)} without an event`,
      'raise the read or idle timeout on the way above the heartbeats, which come every HEARTBEAT_SECONDS (15): nginx proxy_read_timeout, HAProxy timeout server and timeout tunnel',
    );
  }
  if (isHeldBack(measures)) return skip('events are held back, and so are heartbeats');
  if (heartbeats === 0) {
    return fail(
      'No heartbeat came',
      'if HEARTBEAT_SECONDS is long, give a longer --silence; else something on the way swallows them',
    );
  }
  return ok(
    `Heartbeats come through: ${heartbeats} in the silence, of which the longest was ${duration(survivedMs)}`,
  );
}

function resumption({ resumed }: StreamMeasures): Diagnosis {
  if (resumed === null) return skip('there was no event to resume after');
  return resumed
    ? ok('A stream resumes after Last-Event-ID')
    : fail(
        'Last-Event-ID has no effect: the stream begins anew',
        'let that request header pass; clients that cannot may send ?since= instead',
      );
}
