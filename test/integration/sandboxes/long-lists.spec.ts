import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { filesBelow } from '../../support/files-without-sandbox.js';

/** More than the program for files sorts at once, see `native/serve-files.c`. */
const COUNT = 60_000;
const { signal } = new AbortController();

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(process.env['TEST_MEMORY'] ?? tmpdir(), 'lists-'));
});
afterEach(async () => {
  await rm(root, { recursive: true, force: true });
});

it('lists more names than it sorts at once, whole and in parts', async () => {
  const path = join(root, 'many');
  await mkdir(path);
  for (let from = 1; from <= COUNT; from += 1000)
    await Promise.all(
      Array.from({ length: 1000 }, (_, i) => writeFile(join(path, String(from + i)), '')),
    );
  const expected = Array.from({ length: COUNT }, (_, i) => String(i + 1)).toSorted();
  const files = filesBelow(root);
  const list = async (limit: number, after = ''): Promise<string[]> => {
    const found: string[] = [];
    for await (const { name } of files.entries({ path, limit, after, signal })) found.push(name);
    return found;
  };
  const names = await list(COUNT + 1);
  expect(names.length).toBe(COUNT);
  expect(names.findIndex((name, i) => name !== expected[i])).toBe(-1);
  expect(await list(2, expected[54_999])).toEqual(expected.slice(55_000, 55_002));
});
