import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { ROOT } from '../faults/service-process.js';

/** A client of the service, as a process of its own: what it computes disturbs nobody's measurement. */
export class Part {
  private readonly child: ChildProcess;
  private readonly waiting = new Map<number, (answer: unknown) => void>();
  private readonly closed: Promise<unknown>;
  private readonly signal: AbortSignal | undefined;
  private calls = 0;

  /**
   * @param onEvent gets everything that the process says without being asked
   * @param signal gives up the calls of {@link begin}
   */
  constructor(
    name: 'victims' | 'attackers',
    onEvent: (event: unknown) => void,
    signal?: AbortSignal,
  ) {
    this.signal = signal;
    this.child = fork(join(ROOT, 'test/hostile/main.mjs'), [name], {
      execArgv: [],
      // A session of its own: Linux shares processor time between sessions first, then between the processes of each.
      detached: true,
      env: { ...process.env, NODE_OPTIONS: undefined, NODE_ENV: undefined },
    });
    this.closed = once(this.child, 'close');
    this.child.on('message', (message: { call?: number; answer?: unknown; event?: unknown }) => {
      if (message.call === undefined) return onEvent(message.event);
      this.waiting.get(message.call)?.(message.answer);
      this.waiting.delete(message.call);
    });
  }

  /** Calls a method of the process. @throws Error when the process ends without an answer. */
  async call<T>(method: string, argument: object = {}): Promise<T> {
    const call = (this.calls += 1);
    const answered = new Promise<unknown>((resolve) => this.waiting.set(call, resolve));
    if (this.child.connected) this.child.send({ call, method, argument });
    const ended = this.closed.then(() => Promise.reject(new Error(`${method}: the client died`)));
    const answer = (await Promise.race([answered, ended])) as { value?: T; error?: string };
    if (answer.error !== undefined) throw new Error(`${method}: ${answer.error}`);
    return answer.value as T;
  }

  /** A call that may take for ever where the service is ill. @throws the signal's reason */
  async begin(argument: object): Promise<void> {
    const { signal } = this;
    signal?.throwIfAborted();
    await new Promise<void>((resolve, reject) => {
      const abort = (): void => reject(signal?.reason as Error);
      signal?.addEventListener('abort', abort, { once: true });
      this.call<void>('start', argument)
        .then(resolve, reject)
        .finally(() => signal?.removeEventListener('abort', abort));
    });
  }

  /** Ends the process; it ends by itself when this one is gone. */
  async end(): Promise<void> {
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill('SIGKILL');
    await this.closed;
  }
}

/** The other side of {@link Part.call}: answers calls until the harness is gone. */
export function servePart(methods: Record<string, (argument: never) => unknown>): void {
  process.on('message', ({ call, method, argument }: Record<string, unknown>) => {
    Promise.resolve()
      .then(() => methods[String(method)]?.(argument as never))
      .then((value) => process.send?.({ call, answer: { value } }))
      .catch((error: unknown) => process.send?.({ call, answer: { error: String(error) } }));
  });
  process.on('disconnect', () => process.exit(0));
}

/** Says something to the harness. */
export function tellHarness(event: object): void {
  process.send?.({ event });
}
