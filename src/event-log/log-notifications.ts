import { randomUUID } from 'node:crypto';
import { Injectable, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common';
import { EventEmitter2 } from '@nestjs/event-emitter';
import type { SqlExecutor } from '../database/sql.js';
import { Notifications } from '../database/notifications.js';
import type { LogRow } from './event-log.repository.js';

/** In-process events that notify the streams of this process after a commit. */
export interface ProcessEvents {
  /** Rows of one session were committed; `after` is the id of the session's previous row (0: none). */
  'log.committed': { sessionId: string; after: number; rows: readonly LogRow[] };
  /** Another process committed rows of this session. */
  'log.grown': { sessionId: string };
  /** The state of this session or of one of its turns changed, here or elsewhere. */
  'session.changed': { sessionId: string };
  /** There may be work for a worker: a turn, a termination, or a sandbox to destroy. */
  'work.available': Record<string, never>;
  /** Notifications of other processes may have been lost: read the database again. */
  'notifications.missed': Record<string, never>;
}

const SESSIONS = 'session_events';
const WORK = 'work_events';
const NOTIFY = { name: 'notify', text: 'SELECT pg_notify($1, $2)' };
/** PostgreSQL allows 8000 bytes; an entry is 37. */
const PER_NOTIFICATION = 180;

/**
 * Notifies the listeners in this process and in all other processes. Notifications carry no data; receivers read the
 * database.
 */
@Injectable()
export class Notifier implements OnModuleInit, OnApplicationShutdown {
  private readonly origin = randomUUID().slice(0, 8);
  private readonly subscriptions: (() => void)[] = [];

  constructor(
    private readonly emitter: EventEmitter2,
    private readonly notifications: Notifications,
  ) {}

  onModuleInit(): void {
    this.subscriptions.push(
      this.notifications.subscribe(SESSIONS, (payload) => this.receive(payload)),
      this.notifications.subscribe(WORK, (origin) => {
        if (origin !== this.origin) this.emit('work.available', {});
      }),
      this.notifications.onGap(() => this.emit('notifications.missed', {})),
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

  /**
   * Payloads for {@link NOTIFY} that announce new rows of these sessions, for statements that send notifications
   * themselves.
   */
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

  /** Called in the transaction that changes a session's state; call {@link changed} after its commit. */
  async sendChange(sql: SqlExecutor, sessionId: string): Promise<void> {
    await sql.query(NOTIFY, [SESSIONS, `${this.origin}s${sessionId}`]);
  }

  /** Called in the transaction that creates work for a worker; call {@link workAvailable} after its commit. */
  async sendWork(sql: SqlExecutor): Promise<void> {
    await sql.query(NOTIFY, [WORK, this.origin]);
  }

  changed(sessionId: string): void {
    this.emit('session.changed', { sessionId });
  }

  workAvailable(): void {
    this.emit('work.available', {});
  }

  private receive(payload: string): void {
    if (payload.startsWith(this.origin)) return;
    const kind = payload[this.origin.length];
    for (const sessionId of payload.slice(this.origin.length + 1).split(',')) {
      this.emit(kind === 'r' ? 'log.grown' : 'session.changed', { sessionId });
    }
  }
}
