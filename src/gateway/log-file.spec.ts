import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { LogFile } from './log-file.js';

const LINE_BYTES = 100;
const MAX_BYTES = 20 * LINE_BYTES;
const line = (number: number): string => `${String(number).padEnd(LINE_BYTES - 1, '.')}\n`;

let folder: string;
let path: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'log-file-'));
  path = join(folder, 'log');
});
afterEach(() => rmSync(folder, { recursive: true }));

const numbersIn = (file: string): number[] =>
  readFileSync(file, 'utf8')
    .split('\n')
    .filter((text) => text !== '')
    .map((text) => Number.parseInt(text, 10));
const range = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, index) => from + index);

it('keeps the newest lines in two files of a bounded size', () => {
  const log = new LogFile(path, MAX_BYTES);
  for (let number = 0; number < 90; number += 1) {
    log.write(line(number));
    expect(statSync(path).size).toBeLessThanOrEqual(MAX_BYTES);
    expect(statSync(`${path}.1`).size).toBeLessThanOrEqual(MAX_BYTES);
  }
  expect([...numbersIn(`${path}.1`), ...numbersIn(path)]).toEqual(range(60, 90));
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

it('counts what an earlier process and another one at the same time have written', () => {
  new LogFile(path, MAX_BYTES).write(line(0));
  const [first, second] = [new LogFile(path, MAX_BYTES), new LogFile(path, MAX_BYTES)];
  for (let number = 1; number < 60; number += 2) {
    first.write(line(number));
    second.write(line(number + 1));
    expect(statSync(path).size).toBeLessThanOrEqual(2 * MAX_BYTES);
  }
  const kept = [...numbersIn(`${path}.1`), ...numbersIn(path)];
  expect(kept).toEqual(range(kept[0] ?? 0, 61));
});
