import { randomUUID } from 'node:crypto';
import { Injectable, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common';
import { EventEmitter2 } from '@nestjs/event-emitter';
import type { SqlExecutor } from '../database/sql.js';
import { Notifications } from '../database/notifications.js';
import type { LogRow } from './log-row.js';

/** In-process events: what runners and services tell the streams of their own process, after the commit. */
export interface ProcessEvents {
  /** Rows of one session are in the log; `after` is the id of the session's row before them (0: none). */
  'log.committed': { sessionId: string; after: number; rows: readonly LogRow[] };
  /** Another process committed rows of this session. */
  'log.rang': { sessionId: string };
  /** The state of this session or of one of its turns changed, here or elsewhere. */
  'session.changed': { sessionId: string };
  /** There may be something to do for a worker: a turn, a termination, a sandbox to destroy. */
  'work.rang': Record<string, never>;
  /** Notifications of other processes may have been missed: look again. */
  'bells.missed': Record<string, never>;
}

const SESSIONS = 'session_events';
const WORK = 'work_events';
const NOTIFY = { name: 'doorbell', text: 'SELECT pg_notify($1, $2)' };
/** PostgreSQL allows 8000 bytes; an entry is 37. */
const PER_NOTIFICATION = 180;

/**
 * Tells this process's listeners and all other processes that something happened. Nothing that matters travels in a
 * notification; whoever hears it looks into the database.
 */
@Injectable()
export class Doorbell implements OnModuleInit, OnApplicationShutdown {
  private readonly origin = randomUUID().slice(0, 8);
  private readonly subscriptions: (() => void)[] = [];

  constructor(
    private readonly emitter: EventEmitter2,
    private readonly notifications: Notifications,
  ) {}

  onModuleInit(): void {
    this.subscriptions.push(
      this.notifications.subscribe(SESSIONS, (payload) => this.hear(payload)),
      this.notifications.subscribe(WORK, (origin) => {
        if (origin !== this.origin) this.emit('work.rang', {});
      }),
      this.notifications.onGap(() => this.emit('bells.missed', {})),
    );
  }

  onApplicationShutdown(): void {
    for (const end of this.subscriptions) end();
  }

  on<K extends keyof ProcessEvents>(
    event: K,
    listener: (payload: ProcessEvents[K]) => void,
  ): () => void {
    this.emitter.on(event, listener);
    return () => this.emitter.off(event, listener);
  }

  emit<K extends keyof ProcessEvents>(event: K, payload: ProcessEvents[K]): void {
    this.emitter.emit(event, payload);
  }

  /** Payloads for {@link NOTIFY} that say "these sessions have new rows", for a statement that sends them itself. */
  rowPayloads(sessionIds: readonly string[]): string[] {
    const payloads: string[] = [];
    for (let start = 0; start < sessionIds.length; start += PER_NOTIFICATION) {
      const batch = sessionIds.slice(start, start + PER_NOTIFICATION);
      payloads.push(`${this.origin}r${batch.join(',')}`);
    }
    return payloads;
  }

  get rowChannel(): string {
    return SESSIONS;
  }

  /** Part of the transaction that changes a session's state; call {@link changed} after its commit. */
  async ringChange(sql: SqlExecutor, sessionId: string): Promise<void> {
    await sql.query(NOTIFY, [SESSIONS, `${this.origin}s${sessionId}`]);
  }

  /** Part of the transaction that makes work for a worker; call {@link work} after its commit. */
  async ringWork(sql: SqlExecutor): Promise<void> {
    await sql.query(NOTIFY, [WORK, this.origin]);
  }

  changed(sessionId: string): void {
    this.emit('session.changed', { sessionId });
  }

  work(): void {
    this.emit('work.rang', {});
  }

  private hear(payload: string): void {
    if (payload.startsWith(this.origin)) return;
    const kind = payload[this.origin.length];
    for (const sessionId of payload.slice(this.origin.length + 1).split(',')) {
      this.emit(kind === 'r' ? 'log.rang' : 'session.changed', { sessionId });
    }
  }
}
