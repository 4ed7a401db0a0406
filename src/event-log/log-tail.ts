import { type Block, blockAfter } from './frames.js';

const MAX_BYTES = 1024 * 1024;
const MAX_BLOCKS = 4096;

/**
 * The last blocks of one session's log, in memory: all events with `from < id <= tip`, without a hole. Bounded; what no
 * longer fits is in the database.
 */
export class LogTail {
  private blocks: Block[] = [];
  private bytes = 0;

  constructor(
    private from: number,
    public tip = from,
  ) {}

  covers(cursor: number): boolean {
    return cursor >= this.from;
  }

  /**
   * Takes rows that follow the row `after`. When that is not the tip, rows in between were missed, and the tail starts
   * anew behind the hole.
   */
  append(after: number, blocks: readonly Block[]): void {
    if (after > this.tip) {
      this.blocks = [];
      this.bytes = 0;
      this.from = after;
    }
    for (const block of blocks) {
      if (block.last <= this.tip) continue;
      const fresh = blockAfter(block, this.tip);
      this.blocks.push(fresh);
      this.bytes += fresh.bytes.length;
      this.tip = fresh.last;
    }
    this.trim();
  }

  /** What comes after the cursor, oldest first, up to about `maxBytes` but at least one block. The cursor must be covered. */
  after(cursor: number, maxBytes: number): Block[] {
    const found: Block[] = [];
    let size = 0;
    for (let index = this.firstAfter(cursor); index < this.blocks.length; index += 1) {
      const block = this.blocks[index];
      if (!block || (size > 0 && size >= maxBytes)) break;
      found.push(found.length === 0 ? blockAfter(block, cursor) : block);
      size += block.bytes.length;
    }
    return found;
  }

  private firstAfter(cursor: number): number {
    let low = 0;
    let high = this.blocks.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.blocks[middle]?.last ?? Infinity) <= cursor) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  private trim(): void {
    let drop = 0;
    // Dropping half at a time keeps the cost of a block constant.
    if (this.bytes > MAX_BYTES || this.blocks.length > MAX_BLOCKS) {
      while (
        drop < this.blocks.length - 1 &&
        (this.bytes > MAX_BYTES / 2 || this.blocks.length - drop > MAX_BLOCKS / 2)
      ) {
        this.bytes -= this.blocks[drop]?.bytes.length ?? 0;
        drop += 1;
      }
    }
    if (drop > 0) {
      this.from = this.blocks[drop - 1]?.last ?? this.from;
      this.blocks = this.blocks.slice(drop);
    }
  }
}
