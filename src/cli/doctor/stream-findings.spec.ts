import { describe, expect, it } from '@jest/globals';
import { type StreamMeasures, TICKS } from './measure-stream.js';
import { judgeStream } from './stream-check.js';

const GOOD: StreamMeasures = {
  status: 200,
  contentType: 'text/event-stream',
  contentEncoding: 'identity',
  firstEventMs: 20,
  ticks: TICKS,
  delayMs: 60,
  survivedMs: 15_000,
  heartbeats: 1,
  cutAfterMs: null,
  endMs: 40,
  resumed: true,
};

const verdicts = (measures: Partial<StreamMeasures>) =>
  Object.fromEntries(
    judgeStream({ ...GOOD, ...measures }).map(({ check, verdict }) => [check, verdict]),
  );
const ALL_OK = { buffering: 'ok', compression: 'ok', silence: 'ok', resumption: 'ok' };

describe('what the measures of a stream say', () => {
  it.each<[string, Partial<StreamMeasures>, object]>([
    ['nothing stands in the way', {}, ALL_OK],
    ['a slow network', { firstEventMs: 1_500 }, { ...ALL_OK, buffering: 'warn' }],
    [
      'all of it at the end',
      { firstEventMs: 9_000, delayMs: 3_000 },
      { ...ALL_OK, buffering: 'fail', silence: 'skip' },
    ],
    ['lines in lumps', { delayMs: 2_600 }, { ...ALL_OK, buffering: 'fail', silence: 'skip' }],
    [
      'nothing at all',
      { firstEventMs: null, ticks: 0, heartbeats: 0, resumed: null, endMs: null },
      { ...ALL_OK, buffering: 'fail', silence: 'skip', resumption: 'skip' },
    ],
    ['compression', { contentEncoding: 'gzip' }, { ...ALL_OK, compression: 'warn' }],
    ['a cut', { cutAfterMs: 5_000, heartbeats: 0, endMs: null }, { ...ALL_OK, silence: 'fail' }],
    ['no heartbeat', { heartbeats: 0 }, { ...ALL_OK, silence: 'fail' }],
    ['a lost header', { resumed: false }, { ...ALL_OK, resumption: 'fail' }],
    ['lines that are missing', { ticks: 3 }, { ...ALL_OK, buffering: 'fail' }],
    ['another answer', { status: 504, cutAfterMs: 1 }, { stream: 'fail' }],
    ['a page', { contentType: 'text/html' }, { stream: 'fail' }],
  ])('%s', (_name, measures, expected) => {
    expect(verdicts(measures)).toEqual(expected);
  });

  it('says what to do about all that is not well', () => {
    for (const finding of judgeStream({
      ...GOOD,
      cutAfterMs: 1,
      contentEncoding: 'br',
      resumed: false,
    })) {
      expect(finding.verdict === 'ok' || (finding.advice ?? '').length > 10).toBe(true);
    }
  });
});
