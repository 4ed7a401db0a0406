import { describe, expect, test } from '@jest/globals';
import { LogKind } from '../event-log/event-log.repository.js';
import type { Judgement } from '../runtimes/agent-runtime.js';
import { OutcomeTracker } from './output-decoder.js';
import { Redactor } from './redaction/redactor.js';

/** Lines that say `done` or `failed WHY` are verdicts, `step 5` and the like report tokens. */
const runtime = {
  judge: (line: string): Judgement | undefined => {
    const [, of, count] = /^(step|turn|session) (\d+)$/.exec(line) ?? [];
    if (of) return { tokens: { count: Number(count), of: of as 'step' } };
    if (line === 'done') return { verdict: 'done' };
    if (line === 'working') return {};
    return line.startsWith('failed') ? { verdict: 'failed', reason: line.slice(7) } : undefined;
  },
};

const none = Redactor.of([]);

const stdout = (...texts: string[]) => texts.map((data) => ({ kind: LogKind.stdout, data }));

describe('OutcomeTracker', () => {
  test.each([
    ['success', 'start\ndone\n', 0, 0, null],
    ['a verdict without a line end', 'done', 0, 0, null],
    ['a failure with exit 0', 'failed no key\n', 0, 1, 'no key'],
    ['a failure with a code of its own', 'failed no key\n', 41, 41, 'no key'],
    ['a status folded into a code', 'failed 429\n', 173, 1, '429'],
    ['a failure that was got over', 'failed once\ndone\n', 0, 0, null],
    ['a verdict that work went on after', 'done\nworking\n', 0, 1, expect.any(String)],
    ['silence', '', 0, 1, expect.any(String)],
    ['silence and a signal', '', 137, 137, null],
    ['success and then a crash', 'done\n', 139, 139, null],
  ])('%s', (_name, output, code, expected, reason) => {
    const tracker = new OutcomeTracker(runtime, none);
    tracker.take(stdout(output));
    expect(tracker.correct(code)).toEqual({ exitCode: expected, reason });
  });

  test('leaves a runtime alone that says nothing about its outcome', () => {
    const tracker = new OutcomeTracker({}, none);
    tracker.take(stdout('failed\n'));
    expect(tracker.state()).toBeUndefined();
    expect(tracker.correct(0)).toEqual({ exitCode: 0, reason: null });
  });

  test('takes no verdict from standard error', () => {
    const tracker = new OutcomeTracker(runtime, none);
    tracker.take([{ kind: LogKind.stderr, data: 'done\n' }]);
    expect(tracker.correct(0).exitCode).toBe(1);
  });

  test('goes on at any character where a predecessor stopped', () => {
    const output = 'working\nfailed because\nbye';
    for (let at = 0; at <= output.length; at += 1) {
      const first = new OutcomeTracker(runtime, none);
      first.take(stdout(output.slice(0, at)));
      const state = JSON.parse(JSON.stringify(first.state())) as ReturnType<typeof first.state>;
      const second = new OutcomeTracker(runtime, none, state);
      second.take(stdout(output.slice(at)));
      expect(second.correct(0)).toEqual({ exitCode: 1, reason: 'because' });
    }
  });

  test.each([
    ['step 5\nworking\nstep 7\nstep 1\ndone\n', { count: 13, of: 'turn' }],
    ['turn 5\nturn 7\ndone\n', { count: 7, of: 'turn' }],
    ['session 100', { count: 100, of: 'session' }],
    ['working\ndone\n', undefined],
  ])('knows the tokens that are reported in %j, also as a successor', (output, expected) => {
    for (let at = 0; at <= output.length; at += 1) {
      const first = new OutcomeTracker(runtime, none);
      first.take(stdout(output.slice(0, at)));
      const second = new OutcomeTracker(runtime, none, first.state());
      second.take(stdout(output.slice(at)));
      second.correct(0);
      expect(second.reportedTokens).toEqual(expected);
    }
  });

  test('redacts a reason before cutting it, also for a successor', () => {
    const secret = 'p\u00e4ssword-'.repeat(10);
    const first = new OutcomeTracker(runtime, Redactor.of([secret]));
    first.take(stdout(`failed ${'x'.repeat(480)} ${secret} ${'y'.repeat(100)}\n`));
    const reason = `${'x'.repeat(480)} [redacted] ${'y'.repeat(8)}`;
    expect(first.state()).toEqual({ verdict: 'failed', reason });
    expect(first.correct(0)).toEqual({ exitCode: 1, reason });
  });

  test('hands on no more than a bounded part of a line, and then draws no conclusion from silence', () => {
    const first = new OutcomeTracker(runtime, none);
    first.take(stdout('x'.repeat(100_000)));
    const state = first.state();
    expect(JSON.stringify(state).length).toBeLessThan(1000);
    expect(new OutcomeTracker(runtime, none, state).correct(0).exitCode).toBe(0);
    expect(first.correct(0).exitCode).toBe(1);
  });
});
