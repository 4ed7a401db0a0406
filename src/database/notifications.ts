import { EventEmitter } from 'node:events';
import { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { Injectable, Logger, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common';
import { Client } from 'pg';
import { DatabaseUrl } from './data-source.js';

const PING_MS = 5_000;
const END_MS = 1_000;
const RETRY_MS = [100, 250, 500, 1_000, 2_000];

interface ListenConnection {
  client: Client;
  socket: Socket;
}

/**
 * The process's only LISTEN connection. Emits the notifications of each channel, and `gap` after every (re)connection,
 * because notifications may have been missed. Subscribers that rely on notifications then read the database.
 */
@Injectable()
export class Notifications implements OnModuleInit, OnApplicationShutdown {
  private readonly logger = new Logger(Notifications.name);
  private readonly channels = new Map<string, Set<(payload: string) => void>>();
  private readonly gaps = new EventEmitter<{ gap: [] }>().setMaxListeners(0);
  private readonly closing = new AbortController();
  private connection: ListenConnection | undefined;
  private loop: Promise<void> | undefined;

  constructor(private readonly url: DatabaseUrl) {}

  onModuleInit(): void {
    this.loop = this.run();
  }

  async onApplicationShutdown(): Promise<void> {
    this.closing.abort();
    if (this.connection) await endSoon(this.connection);
    await this.loop;
  }

  /** @param channel a lower-case identifier. Returns a function that ends the subscription. */
  subscribe(channel: string, listener: (payload: string) => void): () => void {
    const listeners = this.channels.get(channel) ?? new Set();
    this.channels.set(channel, listeners.add(listener));
    if (listeners.size === 1) {
      // A failure here breaks the connection, and reconnecting listens to every channel anyway.
      this.connection?.client.query(`LISTEN ${channel}`).catch(() => undefined);
    }
    return () => listeners.delete(listener);
  }

  /** Calls `listener` whenever notifications may have been lost. */
  onGap(listener: () => void): () => void {
    this.gaps.on('gap', listener);
    return () => this.gaps.off('gap', listener);
  }

  private async run(): Promise<void> {
    for (let attempt = 0; !this.closing.signal.aborted; attempt += 1) {
      try {
        await this.listen(() => {
          attempt = 0;
        });
      } catch (error) {
        if (attempt === 1) this.logger.warn(`Notifications are interrupted: ${String(error)}`);
      }
      const wait = RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)];
      await delay(wait, undefined, { signal: this.closing.signal }).catch(() => undefined);
    }
  }

  private async listen(connected: () => void): Promise<void> {
    const socket = new Socket();
    const client = new Client({
      stream: () => socket,
      connectionString: this.url.value,
      connectionTimeoutMillis: 5_000,
      query_timeout: PING_MS,
      keepAlive: true,
      application_name: 'agent-session-service listener',
    });
    const lost = new Promise<never>((_resolve, reject) => {
      client.on('error', reject);
      client.on('end', () => reject(new Error('connection ended')));
    });
    lost.catch(() => undefined);
    client.on('notification', ({ channel, payload = '' }) => {
      for (const listener of this.channels.get(channel) ?? []) listener(payload);
    });
    const ended = new AbortController();
    try {
      await client.connect();
      // Notifications were closed while this connected, so nothing else would close the connection.
      if (this.closing.signal.aborted) return;
      this.connection = { client, socket };
      for (const channel of this.channels.keys()) await client.query(`LISTEN ${channel}`);
      connected();
      this.gaps.emit('gap');
      await Promise.race([lost, this.ping(client, ended.signal)]);
    } finally {
      ended.abort();
      this.connection = undefined;
      await endSoon({ client, socket });
    }
  }

  /** A timeout is the only way to notice a peer that vanished silently. */
  private async ping(client: Client, signal: AbortSignal): Promise<void> {
    for (;;) {
      await delay(PING_MS, undefined, { signal });
      await client.query('SELECT 1');
    }
  }
}

/** An orderly end needs a peer that answers; otherwise the socket is destroyed. */
async function endSoon({ client, socket }: ListenConnection): Promise<void> {
  const limit = new AbortController();
  const ended = client
    .end()
    .catch(() => undefined)
    .finally(() => limit.abort());
  const late = delay(END_MS, undefined, { signal: limit.signal }).then(
    () => socket.destroy(),
    () => undefined,
  );
  await Promise.race([ended, late]);
}
