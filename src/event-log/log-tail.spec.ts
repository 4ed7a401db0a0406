import { describe, expect, it } from '@jest/globals';
import type { Block } from './frames.js';
import { LogTail, TailMemory } from './log-tail.js';

const event = (id: number, size = 10): string => `id: ${id}\ndata: ${'x'.repeat(size)}\n\n`;
const block = (id: number, size = 10): Block => ({
  first: id,
  last: id,
  turn: 1,
  isOutput: true,
  data: event(id, size),
});
/** Of every event in the blocks. */
const ids = (blocks: readonly Block[]) =>
  blocks.flatMap(({ data }) =>
    [...data.toString().matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id)),
  );
const LARGE = 40 * 1024;

describe('LogTail', () => {
  it('hands out what comes after any cursor that it covers', () => {
    const tail = new LogTail(new TailMemory(), 5);
    tail.append(5, [block(7), block(9), block(12)]);
    expect(tail.covers(4)).toBe(false);
    expect(ids(tail.after(5, 1000))).toEqual([7, 9, 12]);
    expect(ids(tail.after(8, 1000))).toEqual([9, 12]);
    expect(ids(tail.after(12, 1000))).toEqual([]);
  });

  it('hands out at least one block, and no more than asked for', () => {
    const tail = new LogTail(new TailMemory(), 0);
    tail.append(0, [block(1, LARGE), block(2, LARGE), block(3, LARGE)]);
    expect(ids(tail.after(0, 1))).toEqual([1]);
    expect(ids(tail.after(0, LARGE + 200))).toEqual([1, 2]);
  });

  it('ignores what it has, and starts anew behind a hole', () => {
    const tail = new LogTail(new TailMemory(), 0);
    tail.append(0, [block(1), block(2)]);
    tail.append(0, [block(1), block(2), block(3)]);
    expect(ids(tail.after(0, 1000))).toEqual([1, 2, 3]);
    tail.append(8, [block(9)]);
    expect(tail.covers(3)).toBe(false);
    expect(tail.covers(8)).toBe(true);
    expect(ids(tail.after(8, 1000))).toEqual([9]);
  });

  it('is bounded by bytes and still knows what it covers', () => {
    const tail = new LogTail(new TailMemory(), 0);
    for (let id = 1; id <= 300; id += 1) tail.append(id - 1, [block(id, 64 * 1024)]);
    const covered = Array.from({ length: 301 }, (_, id) => id).filter((id) => tail.covers(id));
    const first = covered[0] ?? 0;
    expect(300 - first).toBeLessThanOrEqual(128);
    expect(300 - first).toBeGreaterThan(32);
    expect(ids(tail.after(first, Infinity))).toEqual(covered.slice(1));
  });

  it('takes no more than its fair part of a memory that is full', () => {
    const memory = new TailMemory();
    const tails = Array.from({ length: 40 }, () => new LogTail(memory, 0));
    for (let id = 1; id <= 100; id += 1) {
      for (const tail of tails) tail.append(id - 1, [block(id, 64 * 1024)]);
    }
    expect(memory.bytes).toBeLessThanOrEqual(80 * 2 ** 20);
    for (const tail of tails) expect(ids(tail.after(99, 1000))).toEqual([100]);
    for (const tail of tails) tail.close();
    expect(memory.bytes).toBe(0);
  });

  it('hands out the rest of a block that the cursor is in', () => {
    const tail = new LogTail(new TailMemory(), 0);
    tail.append(0, [{ ...block(3), first: 1, data: event(1) + event(2) + event(3) }]);
    expect(ids(tail.after(1, 1000))).toEqual([2, 3]);
    tail.append(2, [{ ...block(4), first: 3, data: Buffer.from(event(3) + event(4)) }]);
    expect(ids(tail.after(1, 1000))).toEqual([2, 3, 4]);
    expect(tail.after(3, 1000)).toEqual([{ ...block(4), data: Buffer.from(event(4)) }]);
  });

  it('gives small blocks as one, of one turn and one kind', () => {
    const tail = new LogTail(new TailMemory(), 0);
    const stage = { ...block(3), isOutput: false };
    tail.append(0, [block(1), block(2), stage, { ...block(4), turn: 2 }, { ...block(5), turn: 2 }]);
    expect(tail.after(0, 1000)).toMatchObject([
      { first: 1, last: 2, turn: 1, isOutput: true },
      { first: 3, last: 3, isOutput: false },
      { first: 4, last: 5, turn: 2 },
    ]);
  });

  it('leaves what it has handed out as it was', () => {
    const tail = new LogTail(new TailMemory(), 0);
    const text = (id: number) => `id: ${id}\ndata: "äöü 😀 ${id}"\n\n`;
    const handed: [Block, string][] = [];
    for (let id = 1; id <= 2_000; id += 1) {
      tail.append(id - 1, [{ ...block(id), data: text(id) }]);
      const [only] = tail.after(id - 1, 1000);
      if (only) handed.push([only, text(id)]);
    }
    for (const [{ data }, expected] of handed) expect(data.toString()).toBe(expected);
    expect(handed).toHaveLength(2_000);
  });
});
