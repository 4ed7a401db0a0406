import { describe, expect, it } from '@jest/globals';
import { readCursor } from './streaming.controller.js';

describe('readCursor', () => {
  it.each([
    [undefined, undefined, 0],
    [undefined, '0', 0],
    [undefined, '12', 12],
    ['7', '12', 7],
    ['', '12', 12],
    [undefined, '99999999999999999999999999', Number.MAX_SAFE_INTEGER],
  ])('header %p and since %p are %p', (header, since, cursor) => {
    expect(readCursor(header, since)).toBe(cursor);
  });

  it.each([
    [undefined, ''],
    [undefined, '-1'],
    [undefined, '1.5'],
    [undefined, '1e3'],
    [undefined, ' 1'],
    [undefined, 'abc'],
    [undefined, ['1', '2']],
    ['x', '1'],
  ])('header %p and since %p are refused', (header, since) => {
    expect(() => readCursor(header, since)).toThrow('must be a non-negative integer');
  });
});
