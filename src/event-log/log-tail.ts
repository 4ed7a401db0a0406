import { type Block, blockAfter, firstIdIn } from './frames.js';

/** What one tail holds at most, and what it may keep whatever the others hold. */
const MAX_BYTES = 8 * 1024 * 1024;
const FAIR_BYTES = 64 * 1024;
/** What all tails that share a memory hold at most, but for their fair parts. */
const SHARED_BYTES = 64 * 1024 * 1024;
/** What a slab holds at most, unless a single block is larger. */
const SLAB_BYTES = 64 * 1024;
const FIRST_SLAB_BYTES = 1024;

/** Counts what all tails of a process hold. */
export class TailMemory {
  bytes = 0;
}

/**
 * The last events of one session's log, in memory: all with `from < id <= tip`, without a hole. Bounded; what no longer
 * fits is in the database. They lie one behind the other in slabs, so that who is far behind is sent a few large pieces
 * and who is at the tip the last bytes of one: always views of the same memory.
 */
export class LogTail {
  private slabs: Slab[] = [];
  private bytes = 0;
  /** Most streams are at the same place and ask for the same. */
  private last: { cursor: number; limit: number; blocks: readonly Block[] } | undefined;

  constructor(
    private readonly memory: TailMemory,
    private from: number,
    public tip = from,
  ) {}

  /** Gives its memory back. It holds nothing any more. */
  close(): void {
    this.hold(-this.bytes);
    this.slabs = [];
    this.last = undefined;
    this.from = this.tip;
  }

  covers(cursor: number): boolean {
    return cursor >= this.from;
  }

  /**
   * Takes blocks that follow the row `after`. When that is not the tip, rows in between were missed, and the tail starts
   * anew behind the hole.
   */
  append(after: number, blocks: readonly Block[]): void {
    if (after > this.tip) {
      this.tip = after;
      this.close();
    }
    for (const block of blocks) {
      if (block.last <= this.tip) continue;
      const fresh = blockAfter(block, this.tip);
      const open = this.slabs.at(-1);
      if (!open?.take(fresh)) this.slabs.push(new Slab(fresh));
      this.hold(Buffer.byteLength(fresh.data));
      this.tip = fresh.last;
    }
    this.last = undefined;
    this.trim();
  }

  /** What comes after the cursor, oldest first, up to about `maxBytes` but at least one block. The cursor must be covered. */
  after(cursor: number, maxBytes: number): readonly Block[] {
    const { last } = this;
    if (last?.cursor === cursor && last.limit === maxBytes) return last.blocks;
    const blocks: Block[] = [];
    let size = 0;
    for (let index = this.firstAfter(cursor); index < this.slabs.length; index += 1) {
      const block = this.slabs[index]?.after(cursor);
      if (!block || (size > 0 && size >= maxBytes)) break;
      blocks.push(block);
      size += block.data.length;
    }
    this.last = { cursor, limit: maxBytes, blocks };
    return blocks;
  }

  private firstAfter(cursor: number): number {
    return firstIndex(this.slabs.length, (index) => (this.slabs[index]?.last ?? Infinity) > cursor);
  }

  private hold(bytes: number): void {
    this.bytes += bytes;
    this.memory.bytes += bytes;
  }

  private trim(): void {
    const tooMuch =
      this.bytes > MAX_BYTES || (this.memory.bytes > SHARED_BYTES && this.bytes > FAIR_BYTES);
    if (!tooMuch) return;
    // Dropping half at a time keeps the cost of a block constant.
    const keep = this.bytes / 2;
    let drop = 0;
    while (drop < this.slabs.length - 1 && this.bytes > keep) {
      this.hold(-(this.slabs[drop]?.size ?? 0));
      drop += 1;
    }
    if (drop === 0) return;
    this.from = this.slabs[drop - 1]?.last ?? this.from;
    this.slabs = this.slabs.slice(drop);
  }
}

/** Events that follow each other, all of one turn and one kind. Bytes are only ever added, so views of it stay right. */
class Slab {
  private buffer: Buffer;
  size = 0;
  last: number;
  /** Where the blocks ended of which it was made: their last ids, and the bytes up to there. */
  private readonly ids: number[] = [];
  private readonly ends: number[] = [];

  private readonly turn: number;
  private readonly isOutput: boolean;

  constructor(first: Block) {
    this.turn = first.turn;
    this.isOutput = first.isOutput;
    this.last = first.last;
    const bytes = Buffer.byteLength(first.data);
    this.buffer = Buffer.allocUnsafeSlow(Math.max(FIRST_SLAB_BYTES, bytes));
    this.add(first);
  }

  /** @returns false when the block does not belong here, or there is no more room. */
  take(block: Block): boolean {
    if (block.turn !== this.turn || block.isOutput !== this.isOutput) return false;
    const size = this.size + Buffer.byteLength(block.data);
    if (size > SLAB_BYTES) return false;
    if (size > this.buffer.length) {
      const larger = Math.min(SLAB_BYTES, Math.max(size, this.buffer.length * 4));
      const buffer = Buffer.allocUnsafeSlow(larger);
      this.buffer.copy(buffer, 0, 0, this.size);
      this.buffer = buffer;
    }
    this.add(block);
    return true;
  }

  /** What comes after the cursor, which is below the last id. */
  after(cursor: number): Block {
    const index = firstIndex(this.ids.length, (at) => (this.ids[at] ?? Infinity) > cursor);
    const data = this.buffer.subarray(this.ends[index - 1] ?? 0, this.size);
    const { turn, isOutput } = this;
    return blockAfter({ first: firstIdIn(data), last: this.last, turn, isOutput, data }, cursor);
  }

  private add({ data, last }: Block): void {
    this.size +=
      typeof data === 'string'
        ? this.buffer.write(data, this.size)
        : data.copy(this.buffer, this.size);
    this.ids.push(last);
    this.ends.push(this.size);
    this.last = last;
  }
}

/** The first index below `count` for which `isBehind` holds, which holds for all after it; else `count`. */
function firstIndex(count: number, isBehind: (index: number) => boolean): number {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isBehind(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
