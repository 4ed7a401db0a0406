import { type Block, blockAfter, firstIdIn } from './frames.js';

/** The maximum size of one tail, and the size that it may keep even if the shared memory is full. */
const MAX_BYTES = 8 * 1024 * 1024;
const FAIR_BYTES = 64 * 1024;
/** The maximum size of all tails that share a memory, apart from the guaranteed size of each. */
const SHARED_BYTES = 64 * 1024 * 1024;
/** The maximum size of a slab, unless a single block is larger. */
const SLAB_BYTES = 64 * 1024;
const FIRST_SLAB_BYTES = 1024;

/** The total size of all tails of a process. */
export class TailMemory {
  bytes = 0;
}

/**
 * The most recent events of one session's log, in memory: all with `from < id <= tip`, without gaps. The size is
 * bounded; older events are read from the database. Events are stored consecutively in slabs, so that a stream that is
 * far behind gets a few large pieces and one at the tip the last bytes of a slab. All pieces are views of the same
 * memory.
 */
export class LogTail {
  private slabs: Slab[] = [];
  private bytes = 0;
  private closed = false;
  /** Caches the last result, because most streams have the same cursor. */
  private last: { cursor: number; limit: number; blocks: readonly Block[] } | undefined;

  constructor(
    private readonly memory: TailMemory,
    private from: number,
    public tip = from,
  ) {}

  /** Releases the memory; nothing is added after this. */
  close(): void {
    this.closed = true;
    this.empty();
  }

  private empty(): void {
    this.hold(-this.bytes);
    this.slabs = [];
    this.last = undefined;
    this.from = this.tip;
  }

  covers(cursor: number): boolean {
    return cursor >= this.from;
  }

  /**
   * Adds blocks that follow the row `after`. If that is not the tip, rows in between are missing, and the tail restarts
   * after the gap.
   */
  append(after: number, blocks: readonly Block[]): void {
    // A read may complete after the last reader has left.
    if (this.closed) return;
    if (after > this.tip) {
      this.tip = after;
      this.empty();
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

  /**
   * The events after the cursor, oldest first, up to about `maxBytes` but at least one block. The cursor must be
   * covered.
   */
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
    // Dropping half of the tail at a time keeps the amortised cost of a block constant.
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

/** Consecutive events of one turn and one kind. Bytes are only appended, so views of them stay valid. */
class Slab {
  private buffer: Buffer;
  size = 0;
  last: number;
  /** The boundaries of its blocks: their last ids, and the number of bytes up to there. */
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

  /** @returns false if the block does not fit in here by its turn, kind or size. */
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

  /** The events after the cursor, which must be below the last id. */
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

/**
 * Binary search: the first index below `count` for which `isBehind` holds, else `count`. It must then hold for all
 * later indexes.
 */
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
