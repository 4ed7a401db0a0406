import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { testWith } from '../support/requirements.js';

const ROWS = ['replay', 'fanout'];
/** A bench that hangs fails this test instead of blocking the others. Milliseconds. */
const LIMIT_MS = 300_000;

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'bench-test-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Results {
  measured: Record<string, Record<string, Record<string, number>[]>>;
  judged: { row: string; median?: number; missing?: boolean }[];
}

interface Soak {
  samples: Record<string, number>[];
  problems: string[];
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
      '--profile',
      folder,
    ];
    const bench = spawnSync(process.execPath, ['bench/run.mjs', ...args], {
      encoding: 'utf8',
      timeout: LIMIT_MS,
    });
    expect([bench.status, bench.stderr]).toEqual([0, '']);

    const { measured, judged } = JSON.parse(readFileSync(file, 'utf8')) as Results;
    expect(Object.keys(measured)).toEqual(ROWS);
    for (const row of ROWS) {
      const [round] = measured[row]?.service ?? [];
      expect(round?.rate).toBeGreaterThan(0);
      expect(measured[row]?.service).toHaveLength(1);
    }
    expect(new Set(judged.map(({ row }) => row))).toEqual(new Set(ROWS));

    // Every profile comes with a picture and words in which functions have their names and places in the source.
    const profiles = readdirSync(join(folder, 'replay'));
    const [picture = '', words = ''] = ['.svg', '.md'].map((ending) => {
      const name = profiles.find((one) => one.endsWith(ending)) ?? '';
      return readFileSync(join(folder, 'replay', name), 'utf8');
    });
    expect(picture).toMatch(/^<svg [^]*<\/svg>\n$/);
    for (const text of [picture, words]) expect(text).toMatch(/\w+ src\/[\w/-]+\.ts:\d+/);
  });

  testWith(['bubblewrap'], 'soaks the service with real sandboxes, and leaves nothing', () => {
    const file = join(folder, 'soak.json');
    const args = ['--no-build', '--soak', '6s', '--json', file];
    const bench = spawnSync(process.execPath, ['bench/run.mjs', ...args], {
      encoding: 'utf8',
      timeout: LIMIT_MS,
    });
    expect(bench.stderr).toBe('');
    // So short a time says nothing of what is flat.
    expect(bench.stdout).toContain('database bytes per message');

    const { samples, problems } = JSON.parse(readFileSync(file, 'utf8')) as Soak;
    expect(problems).toEqual([]);
    expect(samples.length).toBeGreaterThan(1);
    for (const sample of samples) expect(sample.usedMb).toBeGreaterThan(1);
    expect(samples.at(-1)?.messages).toBeGreaterThan(0);
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
