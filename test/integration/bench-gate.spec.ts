import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';

const RATIO = { row: 'start', label: 'first output / bwrap', against: 'bare bwrap', atMost: 5 };
const RATE = { row: 'streams', label: '200 streams / nchan', against: 'nchan', atLeast: 0.7 };
const FIGURE = { row: 'turns', label: 'CPU per turn, ms', atMost: 8 };

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'bench-gate-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const spread = (min: number, median: number, max: number) => ({ min, median, max });

/** Runs the bench on results as `--json` writes them. @returns the exit code, and the baseline */
function bench(judged: object[], ...options: string[]) {
  const results = join(folder, 'results.json');
  const baseline = join(folder, 'baseline.json');
  const machine = { description: 'a machine', date: '2026-11-23' };
  writeFileSync(results, JSON.stringify({ machine, judged }));
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    ['bench/run.mjs', '--results', results, '--baseline-file', baseline, ...options],
    { encoding: 'utf8' },
  );
  return { status, said: stdout + stderr, baseline: () => readFileSync(baseline, 'utf8') };
}

describe('the gate of the bench', () => {
  beforeAll(() => {
    const judged = [
      { ...RATIO, ...spread(9, 10, 12) },
      { ...RATE, ...spread(3, 4, 5) },
      { ...FIGURE, ...spread(16, 16, 16) },
      { row: 'idle', label: 'memory / nchan', against: 'nchan', atMost: 1.5, missing: true },
    ];
    expect(bench(judged, '--baseline').status).toBe(0);
  });

  it('keeps ratios only', () => {
    const { ratios } = JSON.parse(bench([], '--baseline').baseline()) as { ratios: object };
    expect(Object.keys(ratios)).toEqual([
      'start: first output / bwrap',
      'streams: 200 streams / nchan',
    ]);
  });

  it.each([
    ['the same', { ...RATIO, ...spread(9, 10, 12) }, 0],
    ['better', { ...RATIO, ...spread(3, 4, 5) }, 0],
    ['worse by less than the noise of the baseline', { ...RATIO, ...spread(11, 13, 14) }, 0],
    ['worse in the median, but not in all rounds', { ...RATIO, ...spread(9.5, 20, 30) }, 0],
    ['worse in all rounds and beyond the noise', { ...RATIO, ...spread(12, 14, 15) }, 1],
    ['higher where that is better', { ...RATE, ...spread(6, 8, 9) }, 0],
    ['lower where higher is better', { ...RATE, ...spread(1, 2, 3) }, 1],
  ])('on a ratio that is %s', (_what, measured, status) => {
    expect(bench([measured], '--gate')).toMatchObject({ status });
  });

  it('fails if there is nothing to compare', () => {
    const { status, said } = bench([{ ...FIGURE, ...spread(1, 1, 1) }], '--gate');
    expect([status, said]).toEqual([1, expect.stringContaining('Nothing could be compared')]);
  });
});
