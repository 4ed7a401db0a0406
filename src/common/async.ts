/** Runs at most a given number of tasks at a time; the others wait in line without a time limit. */
export class Limited {
  private running = 0;
  private readonly waiting: (() => void)[] = [];

  constructor(private readonly most: number) {}

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.running < this.most) this.running += 1;
    // A task that ends hands its place to the next one.
    else await new Promise<void>((resolve) => this.waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = this.waiting.shift();
      if (next) next();
      else this.running -= 1;
    }
  }
}

/**
 * Waits for work until its signal fires, even if the work ignores the signal and continues.
 * @param graceMs how long the work may take to clean up after the signal.
 * @throws the error that `late` returns
 */
export async function abandonable<T>(
  work: Promise<T>,
  signal: AbortSignal,
  late: () => Error,
  graceMs = 0,
): Promise<T> {
  const over = Promise.withResolvers<never>();
  let timer: NodeJS.Timeout | undefined;
  const giveUp = (): void => void (timer = setTimeout(() => over.reject(late()), graceMs));
  if (signal.aborted) giveUp();
  else signal.addEventListener('abort', giveUp, { once: true });
  try {
    return await Promise.race([work, over.promise]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', giveUp);
  }
}

interface Pending<Key, Value> {
  key: Key;
  answer: PromiseWithResolvers<Value | undefined>;
}

/**
 * Looks up many keys with one query: requests that arrive while the database is busy wait for the next query, so that
 * thousands of streams that wake up at the same moment need only a few statements. A value is never older than its
 * request.
 */
export class Batched<Key, Value> {
  private readonly limited: Limited;
  private waiting = new Map<string, Pending<Key, Value>>();

  /**
   * @param options.query returns the values by name; keys that it leaves out have no value.
   * @param options.nameOf returns the same name for equal keys.
   */
  constructor(
    private readonly options: {
      query: (keys: readonly Key[]) => Promise<ReadonlyMap<string, Value>>;
      nameOf: (key: Key) => string;
      /** The maximum number of keys in a query, and of concurrent queries. */
      keys: number;
      queries: number;
    },
  ) {
    this.limited = new Limited(options.queries);
  }

  async get(key: Key): Promise<Value | undefined> {
    const name = this.options.nameOf(key);
    const same = this.waiting.get(name);
    if (same) return same.answer.promise;
    const pending = { key, answer: Promise.withResolvers<Value | undefined>() };
    this.waiting.set(name, pending);
    // Starts one query per full batch. The first one in the queue takes all keys that are waiting by then.
    if (this.waiting.size % this.options.keys === 1 || this.options.keys === 1) {
      queueMicrotask(() => void this.limited.run(() => this.queryNext()));
    }
    return pending.answer.promise;
  }

  private async queryNext(): Promise<void> {
    const batch = [...this.waiting].slice(0, this.options.keys);
    for (const [name] of batch) this.waiting.delete(name);
    if (batch.length === 0) return;
    try {
      const values = await this.options.query(batch.map(([, { key }]) => key));
      for (const [name, { answer }] of batch) answer.resolve(values.get(name));
    } catch (error) {
      for (const [, { answer }] of batch) answer.reject(error);
    }
  }
}

/**
 * Lets a loop sleep until it is notified or a time has passed, without missing a notification that came before it
 * slept. For one loop at a time.
 */
export class Condition {
  private notifications = 0;
  private wake: (() => void) | undefined;

  notify(): void {
    this.notifications += 1;
    this.wake?.();
  }

  /** How many notifications there were. Call before looking for work, and pass the result to {@link wait} afterwards. */
  seen(): number {
    return this.notifications;
  }

  /** Returns at once if there was a notification since `seen`. */
  async wait(seen: number, timeoutMs: number): Promise<void> {
    if (this.notifications !== seen) return;
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
