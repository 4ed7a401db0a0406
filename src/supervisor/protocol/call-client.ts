import { once, setMaxListeners } from 'node:events';
import type { Duplex } from 'node:stream';
import { SANDBOX_ERROR_KINDS, SandboxError } from '../sandbox-error.js';
import { BEAT_MS } from './call-server.js';
import {
  decodeCredit,
  decodeItem,
  decodeJson,
  encodeCredit,
  encodeFrame,
  type Frame,
  FRAME_HEADER_BYTES,
  FrameDecoder,
  INITIAL_CREDIT_BYTES,
  type Item,
  MAX_PAYLOAD_BYTES,
  PROTOCOL_VERSION,
  ProtocolError,
} from './frames.js';

/** A connection that is silent for this long counts as broken. */
const SILENCE_MS = 3 * BEAT_MS;
/** Items may exceed the credit by one item, and an error may follow. */
const MOST_WAITING_BYTES = INITIAL_CREDIT_BYTES + 2 * MAX_PAYLOAD_BYTES;
/** The number of input bytes in one frame. */
const INPUT_PIECE_BYTES = 64 * 1024;

/** The connection is lost, so the results of its calls are unknown. */
export class ConnectionLost extends Error {}

export interface ConnectionLimits {
  /** After this long without a frame, the connection counts as broken. */
  silenceMs?: number;
  /** A connection without calls is closed after this long. Default: never. */
  idleMs?: number;
}

/** A call as the caller specifies it. */
export interface CallOptions {
  name: string;
  parameters: Record<string, unknown>;
  /** Input that is sent after the call. If it fails, the call is cancelled. */
  input?: Buffer | AsyncIterable<Buffer>;
  signal: AbortSignal;
}

/** The client side of a connection to a supervisor. Calls run concurrently. */
export class CallConnection {
  private readonly decoder = new FrameDecoder();
  private readonly calls = new Map<number, OpenCall>();
  private readonly greeted = Promise.withResolvers<void>();
  private lastId = 0;
  private silence: NodeJS.Timeout | undefined;
  private idle: NodeJS.Timeout | undefined;
  private lost: Error | undefined;

  constructor(
    private readonly connection: Duplex,
    private readonly limits: ConnectionLimits = {},
  ) {
    this.greeted.promise.catch(() => undefined);
    connection.on('data', (data: Buffer) => this.receive(data));
    connection.on('error', (error) => this.lose(error));
    connection.once('end', () => this.lose(new Error('the supervisor closed it')));
    const closed = (): void => this.lose(new Error('it was closed'));
    connection.once('close', closed);
    // The connection may have been closed before this ran.
    if (connection.destroyed) closed();
    this.listen();
    this.waitForCalls();
  }

  get isOpen(): boolean {
    return this.lost === undefined;
  }

  /**
   * Yields the items of a call. Leaving the loop cancels the call.
   * @throws SandboxError of the supervisor, or `aborted`; ConnectionLost
   */
  async *call(options: CallOptions): AsyncGenerator<Item, void, undefined> {
    const { name, parameters, input, signal } = options;
    await unlessAborted(this.greeted.promise, signal);
    if (this.lost !== undefined) throw this.lost;
    clearTimeout(this.idle);
    this.lastId += 1;
    const call = new OpenCall(this.lastId, this.connection);
    this.calls.set(call.id, call);
    const abort = (): void => call.end(new SandboxError('aborted', 'the call was aborted'));
    signal.addEventListener('abort', abort);
    try {
      call.send(encodeFrame('call', call.id, { name, parameters }));
      if (input !== undefined) void call.sendInput(input);
      yield* call.items();
    } finally {
      signal.removeEventListener('abort', abort);
      this.calls.delete(call.id);
      call.stopInput();
      if (!call.hasEnded && this.isOpen) call.send(encodeFrame('cancel', call.id));
      this.waitForCalls();
    }
  }

  /** Pending calls end with {@link ConnectionLost}. */
  close(): void {
    this.lose(new Error('it is not needed any more'));
  }

  private receive(data: Buffer): void {
    this.listen();
    try {
      for (const frame of this.decoder.push(data)) this.take(frame);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.lose(error);
    }
  }

  private take(frame: Frame): void {
    if (frame.type === 'hello') {
      const { version } = decodeJson(frame.payload);
      if (version !== PROTOCOL_VERSION)
        throw new ProtocolError('the supervisor is of another build');
      this.greeted.resolve();
    } else if (frame.type !== 'beat') this.calls.get(frame.call)?.take(frame);
  }

  private listen(): void {
    clearTimeout(this.silence);
    if (this.lost !== undefined) return;
    this.silence = setTimeout(
      () => this.lose(new Error('the supervisor does not answer')),
      this.limits.silenceMs ?? SILENCE_MS,
    ).unref();
  }

  private waitForCalls(): void {
    const { idleMs } = this.limits;
    if (idleMs === undefined || this.calls.size > 0 || this.lost !== undefined) return;
    this.idle = setTimeout(() => this.close(), idleMs).unref();
  }

  private lose(cause: Error): void {
    if (this.lost !== undefined) return;
    this.lost = new ConnectionLost(`the connection to the supervisor is lost: ${cause.message}`, {
      cause,
    });
    clearTimeout(this.silence);
    clearTimeout(this.idle);
    this.greeted.reject(this.lost);
    for (const call of this.calls.values()) call.end(this.lost);
    this.connection.destroy();
  }
}

/** One pending call. */
class OpenCall {
  private readonly arrived: Frame[] = [];
  private readonly stop = new AbortController();
  private failure: Error | undefined;
  private inputCredit = INITIAL_CREDIT_BYTES;
  /** Items that arrived but were not consumed yet. */
  private waitingBytes = 0;
  private wake: (() => void) | undefined;
  private isDone = false;

  constructor(
    readonly id: number,
    private readonly connection: Duplex,
  ) {
    setMaxListeners(0, this.stop.signal);
  }

  /** Whether the supervisor has ended the call, or it cannot be cancelled because the connection is lost. */
  get hasEnded(): boolean {
    return this.isDone;
  }

  send(frame: Buffer): void {
    if (this.connection.writable) this.connection.write(frame);
  }

  take(frame: Frame): void {
    if (frame.type === 'credit') {
      this.inputCredit += decodeCredit(frame.payload);
      this.stop.signal.dispatchEvent(new Event('credit'));
      return;
    }
    if (frame.type === 'end' || frame.type === 'error') this.isDone = true;
    else if (frame.type !== 'item') throw new ProtocolError(`${frame.type} is not for workers`);
    this.waitingBytes += FRAME_HEADER_BYTES + frame.payload.length;
    if (this.waitingBytes > MOST_WAITING_BYTES) throw new ProtocolError('more than was asked for');
    this.arrived.push(frame);
    this.wake?.();
  }

  /** Items that arrived before are still yielded. */
  end(failure: Error): void {
    this.failure ??= failure;
    this.stop.abort();
    this.wake?.();
  }

  stopInput(): void {
    this.stop.abort();
  }

  async *items(): AsyncGenerator<Item, void, undefined> {
    for (;;) {
      const frame = this.arrived.shift();
      if (frame?.type === 'item') {
        const item = decodeItem(frame.payload);
        yield item;
        this.waitingBytes -= FRAME_HEADER_BYTES + frame.payload.length;
        this.send(encodeCredit(this.id, FRAME_HEADER_BYTES + frame.payload.length));
      } else if (frame?.type === 'end') return;
      else if (frame !== undefined) throw errorOf(decodeJson(frame.payload));
      else if (this.failure !== undefined) throw this.failure;
      else {
        await new Promise<void>((resolve) => {
          this.wake = resolve;
        });
        this.wake = undefined;
      }
    }
  }

  async sendInput(input: Buffer | AsyncIterable<Buffer>): Promise<void> {
    try {
      for await (const data of Buffer.isBuffer(input) ? [input] : input)
        await this.sendPieces(data);
      this.send(encodeFrame('inputEnd', this.id));
    } catch (error) {
      // If it was stopped, the call has ended without consuming all of its input.
      if (!this.stop.signal.aborted) this.end(error as Error);
    }
  }

  private async sendPieces(data: Buffer): Promise<void> {
    for (let at = 0; at < data.length; at += INPUT_PIECE_BYTES) {
      const piece = data.subarray(at, at + INPUT_PIECE_BYTES);
      this.stop.signal.throwIfAborted();
      while (this.inputCredit < piece.length) {
        await once(this.stop.signal, 'credit', { signal: this.stop.signal });
      }
      this.inputCredit -= piece.length;
      this.send(encodeFrame('input', this.id, piece));
    }
  }
}

/** Accepts known kinds only, because a supervisor's messages may come from inside a sandbox. */
export function errorOf({ kind, message }: Record<string, unknown>): Error {
  const known = SANDBOX_ERROR_KINDS.find((one) => one === kind) ?? 'failed';
  return new SandboxError(known, typeof message === 'string' ? message : 'the call failed');
}

/** @returns the value. @throws SandboxError `aborted` if the signal fires first */
export async function unlessAborted<T>(value: Promise<T> | T, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const abort = (): void => aborted.reject(new SandboxError('aborted', 'the call was aborted'));
  signal.addEventListener('abort', abort);
  if (signal.aborted) abort();
  try {
    return await Promise.race([value, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
