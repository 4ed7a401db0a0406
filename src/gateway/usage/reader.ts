import { createInterface } from 'node:readline';
import type { Duplex } from 'node:stream';
import type { GrantSeal } from '../grants.js';
import type { EgressAnswer, UsageRequest } from '../protocol.js';
import type { UsageEntry } from './usage-entry.js';
import { usageProof, type FromUsageReader, type ToUsageReader } from './messages.js';

export interface UsageReaderHandlers {
  /** Stores entries, some of which may be stored already. If it rejects, the gateway delivers them again. */
  store: (entries: readonly UsageEntry[]) => Promise<void>;
  /** Another gateway has taken over: connect to it, too. */
  replaced: () => void;
}

/** Reads usage from one gateway, over any byte stream that reaches its socket. */
export class UsageReader {
  private readonly flushes = new Map<number, () => void>();
  private flushCount = 0;
  private isOpen = false;

  /** Resolves when the connection has ended, whatever the reason. */
  readonly done: Promise<void>;

  constructor(
    private readonly stream: Duplex,
    seal: GrantSeal,
    private readonly handlers: UsageReaderHandlers,
  ) {
    const request: UsageRequest = { usage: usageProof(seal) };
    stream.write(`${JSON.stringify(request)}\n`);
    const lines = createInterface({ input: stream });
    lines.on('line', (line) => this.receive(line));
    lines.on('error', () => stream.destroy());
    this.done = new Promise((resolve) => {
      stream.on('error', () => stream.destroy());
      stream.once('end', () => stream.destroy());
      stream.once('close', () => {
        for (const settle of this.flushes.values()) settle();
        resolve();
      });
    });
  }

  close(): void {
    this.stream.destroy();
  }

  /** Refuses further model requests of a turn. */
  block(turn: string, message: string): void {
    this.send({ block: { turn, message } });
  }

  /** Resolves when everything that the gateway has recorded so far is stored, or the connection has ended. */
  async flush(): Promise<void> {
    if (this.stream.destroyed) return;
    this.flushCount += 1;
    const number = this.flushCount;
    await new Promise<void>((resolve) => {
      this.flushes.set(number, resolve);
      this.send({ flush: number });
    });
    this.flushes.delete(number);
  }

  private receive(line: string): void {
    try {
      const message = JSON.parse(line) as EgressAnswer | ToUsageReader;
      if (!this.isOpen) {
        if (!('ok' in message && message.ok)) throw new Error('the gateway refuses');
        this.isOpen = true;
      } else if ('batch' in message) void this.store(message.batch, message.entries);
      else if ('flushed' in message) this.flushes.get(message.flushed)?.();
      else if ('replaced' in message) this.handlers.replaced();
    } catch {
      this.stream.destroy();
    }
  }

  private async store(batch: number, entries: readonly UsageEntry[]): Promise<void> {
    try {
      await this.handlers.store(entries);
      this.send({ ack: batch });
    } catch {
      // The gateway delivers them again over the next connection.
      this.stream.destroy();
    }
  }

  private send(message: FromUsageReader): void {
    if (!this.stream.destroyed) this.stream.write(`${JSON.stringify(message)}\n`);
  }
}
