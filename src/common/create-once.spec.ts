import { mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { readOrCreate } from './files.js';

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'create-once-'));
});
afterEach(() => rm(folder, { recursive: true }));

it('gives all that ask at the same time the same text', async () => {
  let made = 0;
  const ask = () => readOrCreate(join(folder, 'deep', 'name'), () => `text ${(made += 1)}`, 0o600);
  const texts = await Promise.all(Array.from({ length: 20 }, ask));
  expect(new Set(texts).size).toBe(1);
  expect(await ask()).toBe(texts[0]);
  expect(await readdir(join(folder, 'deep'))).toEqual(['name']);
  expect((await stat(join(folder, 'deep', 'name'))).mode & 0o777).toBe(0o600);
});

it('removes what a killed process left half made, and nothing else', async () => {
  await writeFile(join(folder, 'name'), 'kept');
  await writeFile(join(folder, 'name.1234.new'), 'half');
  await writeFile(join(folder, 'other.1234.new'), 'not its own');
  expect(await readOrCreate(join(folder, 'name'), () => 'never')).toBe('kept');
  expect((await readdir(folder)).sort()).toEqual(['name', 'other.1234.new']);
});

it('tells why it cannot be read', async () => {
  await expect(readOrCreate(folder, () => 'x')).rejects.toThrow('EISDIR');
});
