import { describe, expect, test } from '@jest/globals';
import { OutputTail } from './output-tail.js';

function tailOf(limit: number, ...pieces: string[]): string {
  const tail = new OutputTail(limit);
  for (const piece of pieces) tail.add(Buffer.from(piece));
  return tail.toString();
}

describe('OutputTail', () => {
  test.each([
    ['all that fits', ['one\n', 'two'], 'one\ntwo'],
    ['whole lines of what does not', ['one two\nthree\n', 'four\n'], 'three\nfour\n'],
    ['nothing of a line that is too long', ['x'.repeat(40), 'yz'], ''],
    ['nothing of its rest that comes later', ['x'.repeat(40), 'y\nnext\n'], 'next\n'],
    ['whole characters', ['€'.repeat(10), '€\n€\n'], '€\n'],
  ])('keeps %s', (_what, pieces, kept) => {
    expect(tailOf(14, ...pieces)).toBe(kept);
  });
});
