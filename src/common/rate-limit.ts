/** An average rate of `each` per second, with bursts of up to `burst`. */
export interface Rate {
  each: number;
  burst: number;
}

/** Enforces a {@link Rate} with a token bucket. */
export class RateLimit {
  private left: number;
  private at: number;

  constructor(
    private readonly rate: Rate,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.left = rate.burst;
    this.at = now();
  }

  /** Whether one more event is allowed now. Counts it if so. */
  take(): boolean {
    const now = this.now();
    this.left = Math.min(this.rate.burst, this.left + ((now - this.at) / 1000) * this.rate.each);
    this.at = now;
    if (this.left < 1) return false;
    this.left -= 1;
    return true;
  }
}
