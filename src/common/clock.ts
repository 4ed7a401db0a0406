/** Time, injected so that tests need not wait. Wall clock for what is stored, monotonic for what is measured. */
export abstract class Clock {
  /** Milliseconds since 1970. */
  abstract now(): number;
  /** Milliseconds from an arbitrary point; never goes back. */
  abstract monotonic(): number;
}

export class SystemClock extends Clock {
  now(): number {
    return Date.now();
  }

  monotonic(): number {
    return performance.now();
  }
}
