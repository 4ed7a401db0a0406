import { closeSync, copyFileSync, openSync, statSync, truncateSync } from 'node:fs';

/** Above this the log is set aside as `.1` and begun anew, so that both stay under twice this. */
const LOG_LIMIT_BYTES = 8 * 1024 * 1024;
const CHECK_INTERVAL_MS = 60_000;

/** A log file that another process appends to and that this one keeps small. */
export class BoundedLog {
  private readonly timer: NodeJS.Timeout;

  constructor(
    readonly path: string,
    private readonly limitBytes = LOG_LIMIT_BYTES,
  ) {
    closeSync(this.open());
    this.trim();
    this.timer = setInterval(() => this.trim(), CHECK_INTERVAL_MS).unref();
  }

  /** @returns a descriptor for appending; the writer goes on at the new end after a truncation */
  open(): number {
    return openSync(this.path, 'a', 0o600);
  }

  /** Sets the log aside once it is larger than allowed. */
  trim(): void {
    try {
      if (statSync(this.path).size <= this.limitBytes) return;
      copyFileSync(this.path, `${this.path}.1`);
    } catch {
      // A full disk or a log that somebody removed: the bound matters more than the old lines.
    }
    try {
      truncateSync(this.path);
    } catch {
      // Removed meanwhile: nothing to bound.
    }
  }

  close(): void {
    clearInterval(this.timer);
  }
}
