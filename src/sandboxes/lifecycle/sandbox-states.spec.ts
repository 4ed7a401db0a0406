import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { expect, test } from '@jest/globals';
import { mayBecome, SANDBOX_STATES } from './sandbox-states.js';

test.each([
  ['warming', []],
  ['ready', ['warming']],
  ['active', ['ready', 'idle']],
  ['idle', ['active']],
  ['deleting', ['warming', 'ready', 'active', 'idle']],
] as const)('a sandbox becomes %s from certain states only', (state, from) => {
  const condition = mayBecome(state);
  expect(SANDBOX_STATES.filter((each) => condition.includes(`'${each}'`))).toEqual(from);
});

test('only this folder writes the table', () => {
  const src = join(import.meta.dirname, '../..');
  const writers = readdirSync(src, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && !file.endsWith('.spec.ts'))
    .filter((file) =>
      /\b(INSERT INTO|UPDATE|DELETE FROM)\s+sandboxes\b/i.test(
        readFileSync(join(src, file), 'utf8'),
      ),
    );
  const folder = relative(src, import.meta.dirname);
  expect(writers.filter((file) => !file.startsWith(folder))).toEqual([]);
  expect(writers.length).toBeGreaterThan(0);
});
