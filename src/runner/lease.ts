/**
 * What this process knows of its hold on a turn: for how long nobody else can have taken it. Told by the monotonic clock
 * and counted from before the database was asked, so that a process that was frozen, or cut off, knows at once that it
 * no longer knows.
 */
export class Lease {
  private readonly waiting = new Set<() => void>();

  /** @param until monotonic, milliseconds. */
  constructor(
    private until: number,
    private readonly now: () => number,
  ) {}

  get isCertain(): boolean {
    return this.now() < this.until;
  }

  extend(until: number): void {
    this.until = Math.max(this.until, until);
    for (const wake of this.waiting) wake();
  }

  /** Resolves while the lease is certainly held: at once, or after it was renewed. @throws the signal's reason. */
  async certain(signal: AbortSignal): Promise<void> {
    while (!this.isCertain) {
      signal.throwIfAborted();
      await new Promise<void>((resolve) => {
        const wake = (): void => {
          signal.removeEventListener('abort', wake);
          this.waiting.delete(wake);
          resolve();
        };
        this.waiting.add(wake);
        signal.addEventListener('abort', wake);
      });
    }
    signal.throwIfAborted();
  }
}
