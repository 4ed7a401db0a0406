import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from '@jest/globals';
import { Look, Uncountable } from './look.js';

const failWith = (code: string) => () => {
  throw Object.assign(new Error(code), { code });
};

it('reads long files in pieces, and every line of them whole', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'look-'));
  const written = Array.from({ length: 20_000 }, (_, i) => `${i} of many lines`);
  writeFileSync(join(folder, 'long'), `${written.join('\n')}\n`);
  const pieces: (readonly string[])[] = [];
  for await (const lines of new Look().lines(join(folder, 'long'))) pieces.push(lines);
  rmSync(folder, { recursive: true });
  expect(pieces.flat()).toEqual(written);
  expect(pieces.length).toBeGreaterThan(1);
});

it('takes no more of the processor than it may', async () => {
  const look = new Look({ steps: Infinity, cpuMs: 30 });
  const lookLong = async (): Promise<void> => {
    for (let i = 0; i < 2_000_000; i += 1) await look.step();
  };
  await expect(lookLong()).rejects.toThrow(Uncountable);
});

it('tells a process that is closed to others from one that is gone', () => {
  const gone = new Look();
  expect(gone.read(failWith('ESRCH'), 'nothing')).toBe('nothing');
  gone.done(process.pid);
  expect(gone.hidden).toBe(false);

  const ending = new Look();
  expect(ending.read(failWith('EACCES'), 'nothing')).toBe('nothing');
  ending.done(2 ** 22 + 1);
  expect(ending.hidden).toBe(false);

  const closed = new Look();
  closed.read(failWith('EACCES'), 'nothing');
  closed.done(process.pid);
  expect(closed.hidden).toBe(true);
});

it('takes no other failure for an answer', () => {
  expect(() => new Look().read(failWith('EMFILE'), 'nothing')).toThrow('EMFILE');
});
