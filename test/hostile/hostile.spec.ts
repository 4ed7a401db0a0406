import { describe, expect, test } from '@jest/globals';
import { describeWith } from '../support/requirements.js';
import { ROOTFS_TIMEOUT_MS } from '../support/software.js';
import { type HostileReport, problems, runHostile } from './hostile.js';
import { printedAt, verifyVictim } from './victim-script.js';

describeWith(['sandboxes with software'], 'one user runs every attack that we know', () => {
  test(
    'and another one loses nothing, starts sessions, and nothing is left of it',
    async () => {
      const report = await runHostile({
        driver: 'local',
        split: false,
        seed: 11,
        quiet: 5,
        attacked: 60,
        atLeast: 21,
        lanes: 5,
        sessions: 6,
        startLimit: 60,
        // How fast it was is for `npm run hostile`: other suites run beside this one.
        pace: 0.3,
        log: () => undefined,
      });
      expect(problems(report)).toEqual([]);
      // That something happened at all.
      expect(report.verified.lines).toBeGreaterThan(1_000);
      expect(report.under.started).toBeGreaterThan(5);
      expect(report.endings.length).toBeGreaterThan(20);
    },
    ROOTFS_TIMEOUT_MS + 300_000,
  );
});

describe('the lines of a victim', () => {
  const padding = 'größer 数字 🚀 "quoted" \\back';
  const lines = [1, 2, 3, 4].map(
    (number) => `out ${number} ${padding} @1700000000.12345${number}\n`,
  );
  const verify = (texts: readonly string[], whole = true) => {
    const events = texts.map((data) => ({
      type: 'output',
      stream: 'stdout' as const,
      turn: 1,
      data,
    }));
    const { lost, repeated, reordered } = verifyVictim(events, whole);
    return { lost, repeated, reordered };
  };

  test('tell when they were printed', () => {
    expect(printedAt(lines[0]?.trimEnd() ?? '')).toBe(1_700_000_000_123);
    expect(printedAt('count 4')).toBeUndefined();
  });

  test.each([
    ['whole', lines, { lost: 0, repeated: 0, reordered: 0 }],
    ['in other pieces', [lines.join('')], { lost: 0, repeated: 0, reordered: 0 }],
    ['one lost', lines.toSpliced(1, 1), { lost: 1, repeated: 0, reordered: 0 }],
    ['the last one lost', lines.slice(0, 3), { lost: 1, repeated: 0, reordered: 0 }],
    ['one repeated', lines.toSpliced(1, 0, lines[0] ?? ''), { lost: 0, repeated: 1, reordered: 0 }],
  ])('%s', (_what, got, differences) => {
    expect(verify([...got, 'count 4\n'])).toEqual(differences);
  });

  test('without an end are not whole, and may be the beginning', () => {
    expect(verify(lines).lost).toBeGreaterThan(0);
    expect(verify([...lines, 'out 5 grö'], false)).toEqual({ lost: 0, repeated: 0, reordered: 0 });
  });
});

test('a report names everything that is wrong', () => {
  const none = { count: 1, p50: 1, p99: 1, max: 1 };
  const measured = { latency: none, start: none, started: 1, failed: [] };
  const report: HostileReport = {
    before: measured,
    under: { ...measured, failed: ['no output within 20 s'] },
    verified: { readers: 1, lines: 5, lost: 1, repeated: 0, reordered: 0, problems: [] },
    endings: [{ attack: 'bomb', ending: 'BREACH', held: false, seconds: 1 }],
    left: ['mount /a'],
    illness: 'all has ended',
    memoryMiB: {},
    seconds: 1,
  };
  expect(problems(report)).toHaveLength(5);
});
