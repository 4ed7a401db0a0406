import type { Duplex } from 'node:stream';
import { setMaxListeners } from 'node:events';
import {
  decodeCredit,
  decodeJson,
  encodeCredit,
  encodeFrame,
  encodeItem,
  type Frame,
  FrameDecoder,
  INITIAL_CREDIT_BYTES,
  type Item,
  PROTOCOL_VERSION,
  ProtocolError,
} from './frames.js';

/** The interval of heartbeats. A peer that misses three of them considers the connection broken. */
export const BEAT_MS = 10_000;
/** The maximum number of concurrent calls of one connection. */
const MAX_CALLS = 64;

/** What the handler of a call receives. */
export interface ServedCall {
  /** The parameters as the peer sent them; the handler must validate them. */
  parameters: Record<string, unknown>;
  /** The call's input, until the peer ends it. Throws if the connection is lost before that. */
  input: AsyncIterable<Buffer>;
  /** Fires when the peer cancels the call or the connection is lost. */
  signal: AbortSignal;
}

/** Serves one call: yields its items, or returns a promise for a call without items. The peer receives an error with its `kind`. */
export type CallHandler = (call: ServedCall) => AsyncIterable<Item> | Promise<void>;

/**
 * Answers calls over a connection until the connection ends, and then aborts all calls.
 * @returns when every call has returned
 */
export async function serveCalls(
  connection: Duplex,
  handlers: Readonly<Record<string, CallHandler>>,
  { beatMs = BEAT_MS }: { beatMs?: number } = {},
): Promise<void> {
  const calls = new Map<number, RunningCall>();
  const running = new Set<Promise<void>>();
  const decoder = new FrameDecoder();
  const send = (frame: Buffer): boolean => connection.writable && connection.write(frame);
  connection.on('error', () => undefined);
  send(encodeFrame('hello', 0, { version: PROTOCOL_VERSION }));
  const beats = setInterval(() => send(encodeFrame('beat', 0)), beatMs);
  const begin = ({ call: id, payload }: Frame): void => {
    if (calls.has(id) || calls.size >= MAX_CALLS) throw new ProtocolError('too many calls');
    const { name, parameters } = decodeJson(payload);
    const handler = Object.hasOwn(handlers, String(name)) ? handlers[String(name)] : undefined;
    const call = new RunningCall(id, connection);
    calls.set(id, call);
    const done = call
      .run(handler, typeof parameters === 'object' ? { ...parameters } : {})
      .finally(() => {
        calls.delete(id);
        running.delete(done);
      });
    running.add(done);
  };
  try {
    for await (const data of connection as AsyncIterable<Buffer>) {
      for (const frame of decoder.push(data)) {
        if (frame.type === 'call') begin(frame);
        // Frames of a call that has just ended may still arrive.
        else calls.get(frame.call)?.take(frame);
      }
    }
  } catch (error) {
    if (!(error instanceof ProtocolError) && !isDisconnect(error)) throw error;
  } finally {
    clearInterval(beats);
    for (const call of calls.values()) call.abort();
    connection.destroy();
    await Promise.all(running);
  }
}

function isDisconnect(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code !== undefined;
}

/** One running call. */
class RunningCall {
  private readonly stop = new AbortController();
  private readonly input: Buffer[] = [];
  private inputBytes = 0;
  private inputEnded = false;
  private credit = INITIAL_CREDIT_BYTES;
  private readonly waiting: (() => void)[] = [];

  constructor(
    private readonly id: number,
    private readonly connection: Duplex,
  ) {
    setMaxListeners(0, this.stop.signal);
  }

  async run(handler: CallHandler | undefined, parameters: Record<string, unknown>): Promise<void> {
    try {
      if (handler === undefined) throw Object.assign(new Error('no such call'), { kind: 'failed' });
      const work = handler({ parameters, input: this.readInput(), signal: this.stop.signal });
      if (work instanceof Promise) await work;
      else for await (const item of work) await this.sendItem(item);
      this.send(encodeFrame('end', this.id));
    } catch (error) {
      const { kind = 'failed', message = '' } = error as { kind?: string; message?: string };
      this.send(encodeFrame('error', this.id, { kind, message: message.slice(0, 2000) }));
    }
  }

  /** Handles a frame of the peer for this call. */
  take({ type, payload }: Frame): void {
    if (type === 'cancel') this.abort();
    else if (type === 'credit') this.credit += decodeCredit(payload);
    else if (type === 'inputEnd') this.inputEnded = true;
    else if (type === 'input') {
      this.input.push(payload);
      this.inputBytes += payload.length;
      if (this.inputBytes > INITIAL_CREDIT_BYTES)
        throw new ProtocolError('input beyond the credit');
    } else throw new ProtocolError(`${type} is not for supervisors`);
    this.changed();
  }

  abort(): void {
    this.stop.abort();
    this.changed();
  }

  private async *readInput(): AsyncGenerator<Buffer, void, undefined> {
    for (;;) {
      const next = this.input.shift();
      if (next !== undefined) {
        this.inputBytes -= next.length;
        yield next;
        this.send(encodeCredit(this.id, next.length));
      } else if (this.inputEnded) return;
      else {
        this.stop.signal.throwIfAborted();
        await this.change();
      }
    }
  }

  /** Sends an item once the peer has consumed enough of the earlier ones. @throws if the call was cancelled */
  private async sendItem(item: Item): Promise<void> {
    while (this.credit <= 0 && !this.stop.signal.aborted) await this.change();
    this.stop.signal.throwIfAborted();
    const frame = encodeItem(this.id, item);
    this.credit -= frame.length;
    this.send(frame);
  }

  private send(frame: Buffer): void {
    if (this.connection.writable) this.connection.write(frame);
  }

  private changed(): void {
    for (const wake of this.waiting.splice(0)) wake();
  }

  private change(): Promise<void> {
    return new Promise((resolve) => this.waiting.push(resolve));
  }
}
