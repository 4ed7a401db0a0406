/** Measured values of one kind, each with the time that it belongs to. */
export class Samples {
  private readonly at: number[] = [];
  private readonly values: number[] = [];

  add(at: number, value: number): void {
    this.at.push(at);
    this.values.push(value);
  }

  /** What was measured in a span of time; milliseconds since the epoch. */
  summary(from: number, to: number): Summary {
    const within = this.values.filter((_value, index) => {
      const at = this.at[index] ?? 0;
      return at >= from && at < to;
    });
    const sorted = within.sort((a, b) => a - b);
    const of = (share: number) => sorted[Math.floor((sorted.length - 1) * share)] ?? 0;
    return { count: sorted.length, p50: of(0.5), p99: of(0.99), max: of(1) };
  }
}

export interface Summary {
  count: number;
  p50: number;
  p99: number;
  max: number;
}
