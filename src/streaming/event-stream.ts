import { Readable } from 'node:stream';
import { type Block, encodeEvent, HEARTBEAT } from '../event-log/frames.js';
import type { FeedListener, SessionFeed } from '../event-log/session-feed.js';
import type { StreamStart, StreamState } from '../sessions/stream-states.repository.js';
import type { StartEvent, TurnStartEvent } from './dto/session-event.dto.js';
import type { StreamFigures } from './stream-figures.js';
import { staleEvent, terminalEventOf } from './terminal-event.js';

const BUFFER_BYTES = 64 * 1024;
/** A page of at least this many bytes is likely to be followed by another one, which is read while this one is sent. */
const READ_AHEAD_BYTES = 128 * 1024;
const RETRY_MS = 500;

export interface EventStreamOptions {
  sessionId: string;
  /** The id of the last event that the client has had. */
  cursor: number;
  start: StreamStart;
  staleAfterSeconds: number;
  /** Joins the session's feed; from then on the listener is woken. */
  join(listener: FeedListener): SessionFeed;
  leave(feed: SessionFeed, listener: FeedListener): void;
  state(): Promise<StreamState | undefined>;
  figures: StreamFigures;
}

/**
 * One client's stream: a cursor that is moved along the session's log, first through what is stored, then live, until
 * the turn that was current when it connected has ended. Reads only what the client takes, in whole events.
 */
export class EventStream extends Readable implements FeedListener {
  private readonly feed: SessionFeed;
  private readonly turn: number;
  private cursor: number;
  /** What comes after the cursor, asked for before the client wanted it. */
  private ahead: Promise<readonly Block[]> | undefined;
  private announcedTurn: number;
  /** Looked at before rows are read: what it says has ended has all its rows in the log. */
  private state: StreamState | undefined;
  private stateIsOld = true;
  private woken = false;
  private sleeping: (() => void) | undefined;
  /** The client has room for more. */
  private wanted = false;
  private pumping = false;
  private finished = false;
  /** Since when the client has had enough, if it has; by the monotonic clock, milliseconds. */
  pausedSince: number | undefined;
  /** When something was last sent; by the monotonic clock, milliseconds. */
  lastSentAt = performance.now();

  constructor(private readonly options: EventStreamOptions) {
    super({ highWaterMark: BUFFER_BYTES });
    const { start, sessionId } = options;
    this.turn = start.turn;
    // A cursor beyond the log would make the client miss what comes.
    this.cursor = Math.min(options.cursor, start.lastId);
    this.announcedTurn = start.announcedTurn;
    this.feed = options.join(this);
    const first: StartEvent = { type: 'start', provider: start.provider, session_id: sessionId };
    this.send(encodeEvent(first), 1);
  }

  wake(stateChanged: boolean): void {
    if (stateChanged) this.stateIsOld = true;
    this.woken = true;
    this.sleeping?.();
  }

  /** Says that the connection is alive, unless the client is behind anyway. */
  beat(): void {
    if (!this.finished && this.readableLength === 0) this.send(HEARTBEAT, 0);
  }

  /** Ends the stream between two events; the client resumes elsewhere. */
  endNow(): void {
    if (this.finished) return;
    this.leave();
    this.push(null);
  }

  override _read(): void {
    this.wanted = true;
    this.pausedSince = undefined;
    if (this.pumping) return;
    this.pumping = true;
    this.pump().catch((error: Error) => this.destroy(error));
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.leave();
    callback(error);
  }

  private leave(): void {
    this.finished = true;
    this.options.leave(this.feed, this);
    this.sleeping?.();
  }

  /** Moves on until the client has enough for now. */
  private async pump(): Promise<void> {
    while (!this.finished) {
      this.woken = false;
      const blocks = await this.readOn();
      if (this.finished) return;
      if (blocks === undefined) {
        await this.sleep(RETRY_MS);
      } else if (blocks.length > 0) {
        this.wanted = false;
        const bytes = this.join(blocks);
        if (bytes.length >= READ_AHEAD_BYTES) this.readAhead();
        if (!this.send(bytes, eventsIn(blocks)) && !this.wanted) {
          this.pumping = false;
          this.pausedSince = performance.now();
          this.options.figures.pauses += 1;
          return;
        }
      } else if (!this.finish() && !this.woken && !this.stateIsOld) {
        await this.sleep();
      }
    }
  }

  /** @returns the next blocks, none when there is nothing new, `undefined` when the database did not answer. */
  private async readOn(): Promise<readonly Block[] | undefined> {
    try {
      if (this.stateIsOld) {
        this.stateIsOld = false;
        const state = await this.options.state();
        if (!state) {
          this.endNow();
          return undefined;
        }
        this.state = state;
        this.feed.expect(state.lastId);
      }
      const ahead = await this.ahead;
      this.ahead = undefined;
      // That there was nothing says nothing: it may have been asked before the state was.
      const blocks = ahead?.length ? ahead : await this.feed.read(this.cursor);
      // A prompt may have queued a further turn since: this stream ends with its own.
      const end = blocks.findIndex((block) => block.turn > this.turn);
      return end === -1 ? blocks : blocks.slice(0, end);
    } catch {
      // Clients wait through an outage of the database; nothing is lost by trying again.
      this.stateIsOld = true;
      this.ahead = undefined;
      return undefined;
    }
  }

  private readAhead(): void {
    this.ahead = this.feed.read(this.cursor);
    this.ahead.catch(() => undefined);
  }

  private join(blocks: readonly Block[]): Buffer {
    const parts: Buffer[] = [];
    for (const { first, last, turn, isOutput, bytes } of blocks) {
      if (isOutput && turn > this.announcedTurn) {
        this.announcedTurn = turn;
        this.options.figures.events += 1;
        const begin: TurnStartEvent = { type: 'turn_start', id: first, turn };
        parts.push(encodeEvent(begin));
      }
      parts.push(bytes);
      this.cursor = last;
    }
    return parts.length === 1 && parts[0] ? parts[0] : Buffer.concat(parts);
  }

  /** Sends the terminal event if it is time. Only called when all rows up to now were sent. */
  private finish(): boolean {
    const { state } = this;
    if (!state || this.stateIsOld) return false;
    const stale =
      state.status === 'running' && state.staleCount > this.options.start.staleCount
        ? staleEvent(this.cursor, this.options.staleAfterSeconds)
        : undefined;
    const event = terminalEventOf(state, this.turn, this.cursor) ?? stale;
    if (!event) return false;
    this.send(encodeEvent(event, event.id), 1);
    this.endNow();
    return true;
  }

  private send(bytes: Buffer, events: number): boolean {
    const { figures } = this.options;
    figures.events += events;
    figures.bytes += bytes.length;
    this.lastSentAt = performance.now();
    return this.push(bytes);
  }

  private async sleep(limitMs?: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = limitMs === undefined ? undefined : setTimeout(resolve, limitMs);
      this.sleeping = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.sleeping = undefined;
  }
}

/** Ids have no gaps within a turn. */
function eventsIn(blocks: readonly Block[]): number {
  return blocks.reduce((sum, { first, last }) => sum + last - first + 1, 0);
}
