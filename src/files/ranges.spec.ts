import { describe, expect, it } from '@jest/globals';
import { attachment, hasTag, partOf } from './ranges.js';

describe('the part of a file that is sent', () => {
  it.each([
    [undefined, 0, 10],
    ['bytes=0-', 0, 10],
    ['bytes=3-', 3, 7],
    ['bytes=3-5', 3, 3],
    ['bytes=3-99999999999999999999', 3, 7],
    ['bytes=-4', 6, 4],
    ['bytes=-99', 0, 10],
    ['Bytes= 9-9', 9, 1],
    // Not understood, so the whole file.
    ['bytes=5-3', 0, 10],
    ['bytes=0-1,3-4', 0, 10],
    ['lines=1-2', 0, 10],
    ['bytes=-', 0, 10],
    ['bytes=a-b', 0, 10],
  ])('of 10 bytes with %j begins at %i and has %i bytes', (range, offset, length) => {
    expect(partOf(10, range)).toEqual({ offset, length });
  });

  it.each(['bytes=10-', 'bytes=10-12', 'bytes=-0'])('is none with %j', (range) => {
    expect(partOf(10, range)).toBeNull();
  });

  it('is all of an empty file, and no range of it', () => {
    expect(partOf(0, undefined)).toEqual({ offset: 0, length: 0 });
    expect(partOf(0, 'bytes=0-')).toBeNull();
    expect(partOf(0, 'bytes=-1')).toBeNull();
  });
});

it('compares entity tags weakly', () => {
  expect(hasTag('"a", W/"b"', '"b"')).toBe(true);
  expect(hasTag('*', '"b"')).toBe(true);
  expect(hasTag('"a"', '"b"')).toBe(false);
  expect(hasTag(undefined, '"b"')).toBe(false);
});

it('names a downloaded file so that no header ends early', () => {
  expect(attachment('größe "1"\r\nX: y.txt')).toBe(
    `attachment; filename="gr__e _1___X: y.txt"; filename*=UTF-8''gr%C3%B6%C3%9Fe%20%221%22%0D%0AX%3A%20y.txt`,
  );
  expect(attachment('\ud800')).toContain("UTF-8''%EF%BF%BD");
});
