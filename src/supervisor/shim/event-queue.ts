/**
 * Passes events of several sources to one reader. A source waits in {@link push} until the reader has taken what came
 * before, so that the queue never grows.
 */
export class EventQueue<T> {
  private readonly waiting: { event: T; taken: () => void }[] = [];
  private wake: (() => void) | undefined;
  private isClosed = false;

  /** Resolves when the reader has taken the event, or does not read any more. */
  async push(event: T): Promise<void> {
    if (this.isClosed) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.waiting.push({ event, taken: resolve });
    this.wake?.();
    await promise;
  }

  /** No event follows those that were pushed. */
  close(): void {
    this.isClosed = true;
    this.wake?.();
  }

  /** The events, until the queue is closed and empty. */
  async *read(): AsyncGenerator<T, void, undefined> {
    try {
      for (;;) {
        const next = this.waiting.shift();
        if (next !== undefined) {
          yield next.event;
          next.taken();
        } else if (this.isClosed) return;
        else {
          await new Promise<void>((resolve) => {
            this.wake = resolve;
          });
        }
      }
    } finally {
      this.isClosed = true;
      for (const { taken } of this.waiting.splice(0)) taken();
    }
  }
}
