import { describe, expect, test } from '@jest/globals';
import { hashBody, readIdempotencyKey } from './repeatable-requests.js';

describe('the header', () => {
  test.each(['a', '!~', 'x'.repeat(255), 'a,b'])('%j is a key', (key) => {
    expect(readIdempotencyKey(key)).toBe(key);
  });
  test.each(['', ' ', 'a b', 'x'.repeat(256), 'ä', 'a\tb', ['a', 'b']])('%j is none', (key) => {
    expect(() => readIdempotencyKey(key)).toThrow('1 to 255 visible ASCII characters');
  });
  test('may be left out', () => {
    expect(readIdempotencyKey(undefined)).toBeUndefined();
  });
});

describe('bodies', () => {
  const hash = (body: object) => hashBody(body).toString('hex');
  test('that say the same are the same', () => {
    expect(hash({ a: 1, b: { c: [1, null], d: 'x' } })).toBe(
      hash({ b: { d: 'x', c: [1, null] }, a: 1, e: undefined }),
    );
  });
  test.each([
    [{ a: 1 }, { a: '1' }],
    [{ a: [1, 2] }, { a: [2, 1] }],
    [{ a: null }, {}],
    [{ a: 'b', c: 'd' }, { a: 'b,c:d' }],
  ])('%j is not %j', (one, other) => {
    expect(hash(one)).not.toBe(hash(other));
  });
});
