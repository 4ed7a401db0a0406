import { fstatSync, ftruncateSync, openSync, readSync, writeSync } from 'node:fs';

const MAX_BYTES = 8 * 2 ** 20;
const COPIED_BYTES = 2 ** 20;

/**
 * A log that stays bounded: when the file is full, its content replaces that of `<path>.1`, and the file starts anew.
 * Both files are opened at once and never renamed, because the gateway may not change its folder after it has given up
 * its rights. Several gateways may write to the same file while one replaces another.
 */
export class LogFile {
  private readonly file: number;
  private readonly previous: number;
  private size: number;

  constructor(
    path: string,
    private readonly maxBytes = MAX_BYTES,
  ) {
    this.file = openSync(path, 'a+', 0o600);
    this.previous = openSync(`${path}.1`, 'a+', 0o600);
    this.size = fstatSync(this.file).size;
  }

  /** Appends a line. Drops it if that fails: a full disk must not end the gateway. */
  write(line: string): void {
    const bytes = Buffer.from(line);
    try {
      if (this.size + bytes.length > this.maxBytes) this.rotate();
      writeSync(this.file, bytes);
      this.size += bytes.length;
    } catch {
      // The next line tries again.
    }
  }

  private rotate(): void {
    // Another process may have written, or rotated the file already.
    this.size = fstatSync(this.file).size;
    if (this.size <= this.maxBytes / 2) return;
    ftruncateSync(this.previous);
    try {
      this.copy();
    } finally {
      // Even if the copy fails, the log must not grow further.
      ftruncateSync(this.file);
      this.size = 0;
    }
  }

  private copy(): void {
    const buffer = Buffer.alloc(COPIED_BYTES);
    let position = 0;
    for (;;) {
      const count = readSync(this.file, buffer, 0, buffer.length, position);
      if (count === 0) return;
      writeSync(this.previous, buffer, 0, count);
      position += count;
    }
  }
}
