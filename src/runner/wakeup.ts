/** Lets a loop sleep until something rings or a time has passed, without missing a ring that came before it slept. */
export class Wakeup {
  private rings = 0;
  private wake: (() => void) | undefined;

  ring(): void {
    this.rings += 1;
    this.wake?.();
  }

  /** To be taken before looking for work, and given to {@link wait} after. */
  heard(): number {
    return this.rings;
  }

  /** Returns at once if it rang since `heard`. */
  async wait(heard: number, timeoutMs: number): Promise<void> {
    if (this.rings !== heard) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, timeoutMs);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.wake = undefined;
  }
}
