import { describe, expect, test } from '@jest/globals';
import { Random } from './random.js';
import { expectedOutput, planScript } from './script.js';
import type { StreamEvent } from './stream-reader.js';
import { compareTurn } from './verify.js';

const plan = planScript(new Random(7), 3);
const lines = expectedOutput(plan).stdout.split(/(?<=\n)/);
const events = (stdout: readonly string[]): StreamEvent[] => [
  ...stdout.map((data): StreamEvent => ({ type: 'output', stream: 'stdout', turn: 1, data })),
  { type: 'output', stream: 'stderr', turn: 1, data: expectedOutput(plan).stderr },
];
const compare = (stdout: readonly string[], complete = true) => {
  const { lost, repeated, reordered } = compareTurn(plan, events(stdout), 1, complete);
  return { lost, repeated, reordered };
};

describe('a turn compared with what its script wrote', () => {
  test('is whole', () => {
    expect(compare(lines)).toEqual({ lost: 0, repeated: 0, reordered: 0 });
    expect(compare([lines.join('')])).toEqual({ lost: 0, repeated: 0, reordered: 0 });
  });

  test.each([
    ['lost in the middle', lines.toSpliced(4, 2), { lost: 2, repeated: 0, reordered: 0 }],
    ['lost at the end', lines.slice(0, -1), { lost: 1, repeated: 0, reordered: 0 }],
    ['repeated', lines.toSpliced(4, 0, lines[3] ?? ''), { lost: 0, repeated: 1, reordered: 0 }],
    [
      'reordered',
      lines.toSpliced(4, 2, lines[5] ?? '', lines[4] ?? ''),
      { lost: 0, repeated: 0, reordered: 1 },
    ],
    [
      'changed',
      lines.with(0, lines[0]?.replace(/.\n$/, '?\n') ?? ''),
      { lost: 1, repeated: 0, reordered: 0 },
    ],
  ])('%s', (_what, got, differences) => {
    expect(compare(got)).toEqual(differences);
  });

  test('may be the beginning when it was cut short, and nothing else', () => {
    expect(compare(lines.slice(0, 5), false)).toEqual({ lost: 0, repeated: 0, reordered: 0 });
    expect(compare(lines.slice(1, 5), false).lost).toBeGreaterThan(0);
  });
});
