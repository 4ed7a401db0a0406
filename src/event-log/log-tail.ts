import type { Frame } from './frames.js';

const MAX_BYTES = 1024 * 1024;
const MAX_FRAMES = 4096;

/**
 * The last frames of one session's log, in memory: all rows with `from < id <= tip`, without a hole. Bounded; what no
 * longer fits is in the database.
 */
export class LogTail {
  private frames: Frame[] = [];
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
  append(after: number, frames: readonly Frame[]): void {
    const fresh = frames.filter((frame) => frame.id > this.tip);
    if (after > this.tip) {
      this.frames = [];
      this.bytes = 0;
      this.from = after;
    }
    for (const frame of fresh) {
      this.frames.push(frame);
      this.bytes += frame.bytes.length;
      this.tip = frame.id;
    }
    this.trim();
  }

  /** Frames after the cursor, oldest first, up to about `maxBytes` but at least one. The cursor must be covered. */
  after(cursor: number, maxBytes: number): Frame[] {
    let index = this.firstAfter(cursor);
    const start = index;
    for (
      let size = 0;
      index < this.frames.length && (index === start || size < maxBytes);
      index += 1
    ) {
      size += this.frames[index]?.bytes.length ?? 0;
    }
    return this.frames.slice(start, index);
  }

  private firstAfter(cursor: number): number {
    let low = 0;
    let high = this.frames.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.frames[middle]?.id ?? Infinity) <= cursor) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  private trim(): void {
    let drop = 0;
    // Dropping half at a time keeps the cost of a frame constant.
    if (this.bytes > MAX_BYTES || this.frames.length > MAX_FRAMES) {
      while (
        drop < this.frames.length - 1 &&
        (this.bytes > MAX_BYTES / 2 || this.frames.length - drop > MAX_FRAMES / 2)
      ) {
        this.bytes -= this.frames[drop]?.bytes.length ?? 0;
        drop += 1;
      }
    }
    if (drop > 0) {
      this.from = this.frames[drop - 1]?.id ?? this.from;
      this.frames = this.frames.slice(drop);
    }
  }
}
