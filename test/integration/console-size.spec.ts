import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';

/** More than the first page may load, and it does not compress. */
const MUCH = `/*${randomBytes(200 * 1024).toString('base64')}*/`;
const PAGE =
  '<link rel="stylesheet" href="./assets/look.css"><script src="./assets/first.js"></script>';

describe('the build of the console', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'console-size-'));
    mkdirSync(join(folder, 'assets'));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  /** Checks a console of which one file is large. */
  function check(large: 'first' | 'second' | 'third' | 'later') {
    const files = {
      'index.html': PAGE,
      'assets/look.css': 'body{color:red}',
      'assets/first.js':
        'import{a}from"./second.js";import"./third.js";a(()=>import("./later.js"))',
      'assets/second.js': 'import{b}from"./first.js";export const a=b',
      'assets/third.js': 'export{}',
      'assets/later.js': 'export{}',
    };
    files[`assets/${large}.js`] += MUCH;
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    return spawnSync(process.execPath, ['scripts/console.mjs', '--size', folder], {
      encoding: 'utf8',
    });
  }

  it('does not count what is loaded on demand', () => {
    const { status, stdout, stderr } = check('later');
    expect([status, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/^The first page loads \d{3} bytes, compressed\n$/);
  });

  it.each(['first', 'second', 'third'] as const)(
    'fails where the %s file is too large',
    (large) => {
      const { status, stderr } = check(large);
      expect(status).toBe(1);
      expect(stderr).toMatch(/at most 204800:\n/);
      expect(stderr.split('\n')[1]).toMatch(new RegExp(`^  \\d+ assets/${large}\\.js$`));
    },
  );
});
