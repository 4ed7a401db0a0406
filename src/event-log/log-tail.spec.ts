import { describe, expect, it } from '@jest/globals';
import type { Frame } from './frames.js';
import { LogTail } from './log-tail.js';

const frame = (id: number, size = 10): Frame => ({
  id,
  turn: 1,
  isOutput: true,
  bytes: Buffer.alloc(size),
});
const ids = (frames: readonly Frame[]) => frames.map(({ id }) => id);

describe('LogTail', () => {
  it('hands out what comes after any cursor that it covers', () => {
    const tail = new LogTail(5);
    tail.append(5, [frame(7), frame(9), frame(12)]);
    expect(tail.covers(4)).toBe(false);
    expect(ids(tail.after(5, 1000))).toEqual([7, 9, 12]);
    expect(ids(tail.after(8, 1000))).toEqual([9, 12]);
    expect(ids(tail.after(12, 1000))).toEqual([]);
  });

  it('hands out at least one frame, and no more than asked for', () => {
    const tail = new LogTail(0);
    tail.append(0, [frame(1, 100), frame(2, 100), frame(3, 100)]);
    expect(ids(tail.after(0, 1))).toEqual([1]);
    expect(ids(tail.after(0, 150))).toEqual([1, 2]);
  });

  it('ignores what it has, and starts anew behind a hole', () => {
    const tail = new LogTail(0);
    tail.append(0, [frame(1), frame(2)]);
    tail.append(0, [frame(1), frame(2), frame(3)]);
    expect(ids(tail.after(0, 1000))).toEqual([1, 2, 3]);
    tail.append(8, [frame(9)]);
    expect(tail.covers(3)).toBe(false);
    expect(tail.covers(8)).toBe(true);
    expect(ids(tail.after(8, 1000))).toEqual([9]);
  });

  it('is bounded by bytes and still knows what it covers', () => {
    const tail = new LogTail(0);
    for (let id = 1; id <= 100; id += 1) tail.append(id - 1, [frame(id, 64 * 1024)]);
    const covered = Array.from({ length: 101 }, (_, id) => id).filter((id) => tail.covers(id));
    const first = covered[0] ?? 0;
    expect(100 - first).toBeLessThanOrEqual(16);
    expect(ids(tail.after(first, Infinity))).toEqual(covered.slice(1));
  });
});
