import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';

const ROWS = ['replay', 'fanout'];

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'bench-test-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Results {
  measured: Record<string, Record<string, Record<string, number>[]>>;
  judged: { row: string; median?: number; missing?: boolean }[];
}

describe('the bench', () => {
  it('measures the service in a tiny setting, with its streams checked', () => {
    const file = join(folder, 'results.json');
    const args = [
      '--no-build',
      '--tiny',
      '--rounds',
      '1',
      '--only',
      ROWS.join(','),
      '--json',
      file,
    ];
    const bench = spawnSync(process.execPath, ['bench/run.mjs', ...args], { encoding: 'utf8' });
    expect([bench.status, bench.stderr]).toEqual([0, '']);

    const { measured, judged } = JSON.parse(readFileSync(file, 'utf8')) as Results;
    expect(Object.keys(measured)).toEqual(ROWS);
    for (const row of ROWS) {
      const [round] = measured[row]?.service ?? [];
      expect(round?.rate).toBeGreaterThan(0);
      expect(measured[row]?.service).toHaveLength(1);
    }
    expect(new Set(judged.map(({ row }) => row))).toEqual(new Set(ROWS));
  });

  it('says what it takes', () => {
    const bench = spawnSync(process.execPath, ['bench/run.mjs', '--only', 'nothing'], {
      encoding: 'utf8',
    });
    expect(bench.status).toBe(2);
    expect(bench.stderr).toContain('There is no row nothing');
    expect(bench.stderr).toContain('--rounds N');
  });
});
