import type { Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { randomUUID } from 'node:crypto';
import type { Transform } from 'node:stream';
import type { GrantSeal, ModelGrant } from '../grants.js';
import type { EgressAnswer } from '../protocol.js';
import { UsageJournal, type UsageJournalOptions } from './journal.js';
import { metered, ResponseMeter } from './meter.js';
import { isUsageProof, type FromUsageReader, type ToUsageReader } from './messages.js';
import type { UsageBatch, UsageEntry } from './usage-entry.js';

const MAX_MODEL = 100;
/** Turns end after a day. More blocked ones than this are forgotten, the oldest first. */
const MAX_BLOCKED = 10_000;
const ADOPT_MS = 1000;
/** No message of a worker is as long as this. */
const MAX_BUFFERED_BYTES = 2 ** 20;

/** Counts one request to a model API. */
export interface RequestCount {
  /** A stream for the response's body to pass through. */
  meter(status: number, contentType: string): Transform;
  /** Records the request. Call it when the request has ended, whatever its result. */
  end(): void;
}

interface Reader {
  socket: Socket;
  /** Flush requests that wait until all entries before them are acknowledged. */
  flushes: number[];
}

/**
 * The usage of model APIs: counts requests, keeps them in a journal, and delivers them to the workers that are connected.
 * Workers acknowledge what they have stored. They also say which turns may send no more requests.
 */
export class UsageFeed {
  private readonly readers = new Set<Reader>();
  private readonly blocked = new Map<string, string>();
  /** The batch that the oldest reader has not acknowledged yet. */
  private sent: { reader: Reader; number: number; batch: UsageBatch } | undefined;
  private batches = 0;
  private isScheduled = false;
  private readonly adoption: NodeJS.Timeout;

  private constructor(
    private readonly journal: UsageJournal,
    private readonly log: (message: string) => void,
  ) {
    this.adoption = setInterval(() => void this.adopt(), ADOPT_MS).unref();
  }

  /** @param log called with failures */
  static async open(
    options: UsageJournalOptions,
    log: (message: string) => void = () => undefined,
  ): Promise<UsageFeed> {
    const feed = new UsageFeed(await UsageJournal.open(options), log);
    await feed.adopt();
    return feed;
  }

  /** How many workers are connected. */
  get readerCount(): number {
    return this.readers.size;
  }

  get isEmpty(): boolean {
    return this.journal.isEmpty;
  }

  close(): void {
    clearInterval(this.adoption);
    this.journal.close();
  }

  /** Why a turn may send no more requests; `undefined` if it may. */
  blockOf(turn: string): string | undefined {
    return this.blocked.get(turn);
  }

  /** Whether nothing more can be recorded, so that no request may be forwarded. */
  get isFull(): boolean {
    return this.journal.isFull;
  }

  /** Begins to count a request that is forwarded. */
  begin(grant: ModelGrant): RequestCount {
    const { session, turn, user, api } = grant;
    const started = performance.now();
    const at = Date.now();
    const id = randomUUID();
    let status: number | undefined;
    let meter: ResponseMeter | undefined;
    let isBegun = false;
    const entry = (): UsageEntry => ({
      id,
      session,
      turn,
      user,
      api,
      model: (meter?.model ?? '').slice(0, MAX_MODEL),
      status: status ?? 0,
      at,
      durationMs: Math.round(performance.now() - started),
      ...(meter ?? NOTHING).tokens,
    });
    return {
      meter: (answered, contentType) => {
        status = answered;
        const own = (meter = new ResponseMeter(api, contentType));
        return metered(own, () => {
          if (isBegun || !own.hasReport) return;
          isBegun = true;
          this.write(() => this.journal.begin(entry()));
        });
      },
      end: () => {
        // Nothing was answered, so nothing is billed.
        if (status === undefined) return;
        this.write(() => this.journal.append(entry()));
        this.schedule();
      },
    };
  }

  /** Serves a worker. @param proof see {@link isUsageProof} @returns `false` if the proof is wrong */
  attach(socket: Socket, proof: string, seal: GrantSeal): boolean {
    if (!isUsageProof(seal, proof)) return false;
    const reader: Reader = { socket, flushes: [] };
    this.readers.add(reader);
    send(socket, { ok: true });
    socket.once('close', () => {
      this.readers.delete(reader);
      if (this.sent?.reader === reader) this.sent = undefined;
      this.schedule();
    });
    const lines = createInterface({ input: socket });
    lines.on('line', (line) => this.receive(reader, line));
    lines.on('error', () => socket.destroy());
    socket.on('data', () => {
      if (socket.readableLength > MAX_BUFFERED_BYTES) socket.destroy();
    });
    this.schedule();
    return true;
  }

  /** Tells the workers that another gateway has taken over. They connect to it as well, and read this one to its end. */
  announceReplacement(): void {
    for (const { socket } of this.readers) send(socket, { replaced: true });
  }

  private receive(reader: Reader, line: string): void {
    let message: FromUsageReader;
    try {
      message = JSON.parse(line) as FromUsageReader;
    } catch {
      return void reader.socket.destroy();
    }
    if ('ack' in message) {
      if (this.sent?.reader !== reader || this.sent.number !== message.ack) return;
      const { batch } = this.sent;
      this.sent = undefined;
      this.write(() => batch.acknowledge());
    } else if ('flush' in message) reader.flushes.push(message.flush);
    else if ('block' in message) {
      const { turn, message: reason } = message.block;
      this.blocked.delete(turn);
      this.blocked.set(turn, reason);
      const [oldest = ''] = this.blocked.keys();
      if (this.blocked.size > MAX_BLOCKED) this.blocked.delete(oldest);
    }
    this.deliver();
  }

  private async adopt(): Promise<void> {
    try {
      await this.journal.adopt();
    } catch (error) {
      this.log(`Usage of killed gateways cannot be read: ${String(error)}`);
    }
    this.schedule();
  }

  /** Waits a moment, so that requests that end together are delivered in one batch. */
  private schedule(): void {
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(() => {
      this.isScheduled = false;
      this.deliver();
    });
  }

  private deliver(): void {
    const [reader] = this.readers;
    if (reader === undefined || this.sent !== undefined) return;
    const batch = this.journal.next();
    if (batch === undefined) {
      for (const { socket, flushes } of this.readers)
        for (const flushed of flushes.splice(0)) send(socket, { flushed });
      return;
    }
    this.batches += 1;
    this.sent = { reader, number: this.batches, batch };
    send(reader.socket, { batch: this.batches, entries: batch.entries });
  }

  private write(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.log(`Usage cannot be recorded: ${String(error)}`);
    }
  }
}

const NOTHING: Pick<ResponseMeter, 'tokens'> = {
  tokens: {
    input_tokens: 0,
    output_tokens: 0,
    cache_read_input_tokens: 0,
    cache_creation_input_tokens: 0,
  },
};

function send(socket: Socket, message: ToUsageReader | EgressAnswer): void {
  socket.write(`${JSON.stringify(message)}\n`);
}
