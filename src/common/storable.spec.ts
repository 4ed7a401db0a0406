import { describe, expect, test } from '@jest/globals';
import { cutText, cutTextStart, storableInteger, storableJson, storableText } from './storable.js';

const FACE = '\u{1F600}';
const REPLACED = '\u{FFFD}';

describe('storableText', () => {
  test.each([
    ['plain text', 'a\u00e9\u{1F600}', 'a\u00e9\u{1F600}'],
    ['NUL', 'a\0b', `a${REPLACED}b`],
    ['a first half', 'a\ud83d', `a${REPLACED}`],
    ['a second half', '\ude00a', `${REPLACED}a`],
    ['halves the wrong way round', '\ude00\ud83d', REPLACED + REPLACED],
  ])('%s', (_name, text, expected) => {
    expect(storableText(text)).toBe(expected);
  });

  test('never cuts a character in two, wherever it cuts', () => {
    const text = `a${FACE}b${FACE}${FACE}`;
    for (let length = 0; length <= text.length; length += 1) {
      for (const cut of [cutText, cutTextStart]) {
        const piece = cut(text, length);
        expect(piece.isWellFormed()).toBe(true);
        expect(piece.length).toBeLessThanOrEqual(length);
        expect(piece.length).toBeGreaterThanOrEqual(Math.min(length, text.length) - 1);
      }
      expect(text.startsWith(cutText(text, length))).toBe(true);
      expect(text.endsWith(cutTextStart(text, length))).toBe(true);
    }
  });
});

describe('storableInteger', () => {
  test.each([0, 255, Number.MAX_SAFE_INTEGER])('takes %p', (value) => {
    expect(storableInteger(value)).toBe(value);
  });

  test.each([-1, 0.5, NaN, Infinity, 2 ** 53, 2 ** 64, '1', null, undefined])(
    'refuses %p',
    (value) => {
      expect(storableInteger(value)).toBeUndefined();
    },
  );

  test('keeps to its bounds', () => {
    expect(storableInteger(256, { max: 255 })).toBeUndefined();
    expect(storableInteger(-1, { min: -1 })).toBe(-1);
  });
});

describe('storableJson', () => {
  test('keeps what is storable as it is', () => {
    const value = { a: [1, 'x', null, true, { b: -2.5 }], c: { d: '\u{1F600}' } };
    expect(storableJson(value)).toEqual(value);
  });

  test('cleans texts and names, and drops what JSON has no word for', () => {
    const value = { 'a\0': 'b\ud83d', c: undefined, d: NaN, e: () => 1, f: 10n };
    expect(storableJson(value)).toEqual({
      [`a${REPLACED}`]: `b${REPLACED}`,
      d: null,
      e: null,
      f: null,
    });
  });

  test('bounds length, number of members and depth', () => {
    const deep = JSON.parse('['.repeat(100_000) + ']'.repeat(100_000)) as unknown;
    expect(JSON.stringify(storableJson(deep)).length).toBeLessThan(50);
    const wide = Object.fromEntries(Array.from({ length: 5_000 }, (_, at) => [`k${at}`, at]));
    expect(Object.keys(storableJson(wide) as object)).toHaveLength(1_000);
    expect(storableJson('x'.repeat(10 ** 6))).toHaveLength(64 * 1024);
    expect(storableJson(Array.from({ length: 5_000 }, () => 0))).toHaveLength(1_000);
  });
});
