interface Waiting {
  bytes: number;
  work: () => void;
  done: () => void;
}

/** The amount of work in one round of the event loop. Bytes. */
const BYTES_AT_ONCE = 2 ** 20;

/**
 * Runs large pieces of work in turn, user by user. Each round of the event loop runs a limited number of bytes (but at
 * least one piece), so that small work and other users wait only milliseconds.
 */
export class LoopTurns {
  /** In the order in which the users are served. */
  private readonly queues = new Map<string, Waiting[]>();
  private isScheduled = false;

  constructor(
    private readonly bytesAtOnce = BYTES_AT_ONCE,
    private readonly schedule: (run: () => void) => unknown = setImmediate,
  ) {}

  /** Resolves when the work is done, in the user's turn. It must not throw. */
  async run(userId: string, bytes: number, work: () => void): Promise<void> {
    await new Promise<void>((done) => {
      const queue = this.queues.get(userId);
      if (queue) queue.push({ bytes, work, done });
      else this.queues.set(userId, [{ bytes, work, done }]);
      this.scheduleNext();
    });
  }

  private scheduleNext(): void {
    if (this.isScheduled || this.queues.size === 0) return;
    this.isScheduled = true;
    this.schedule(() => {
      this.isScheduled = false;
      this.round();
      this.scheduleNext();
    });
  }

  private round(): void {
    let bytes = 0;
    for (const [userId, queue] of this.queues) {
      const next = queue.shift();
      // Moves the user to the end of the queue; the iteration will reach it again.
      this.queues.delete(userId);
      if (queue.length > 0) this.queues.set(userId, queue);
      if (!next) continue;
      next.work();
      next.done();
      bytes += next.bytes;
      if (bytes >= this.bytesAtOnce) return;
    }
  }
}
