import type { Writable } from 'node:stream';
import { type Block, encodeEvent, HEARTBEAT } from '../event-log/frames.js';
import type { FeedHub } from '../event-log/feed-hub.js';
import type { FeedListener, SessionFeed } from '../event-log/session-feed.js';
import type {
  StreamStart,
  StreamState,
  StreamStates,
} from '../sessions/stream-states.repository.js';
import type { StartEvent, TurnStartEvent } from './dto/session-event.dto.js';
import type { StreamFigures } from './stream-figures.js';
import { staleEvent, terminalEventOf } from './terminal-event.js';

/** A page of at least so much is likely to be followed by another one, which is read while this one is sent. */
const READ_AHEAD_SIZE = 128 * 1024;
const RETRY_MS = 500;

/** What the streams of a process share. */
export interface StreamContext {
  hub: FeedHub;
  states: StreamStates;
  figures: StreamFigures;
  staleAfterSeconds: number;
  /** Told once, when a stream's connection is gone. */
  closed(stream: EventStream): void;
}

/**
 * One client's stream: a cursor that is moved along the session's log, first through what is stored, then live, until
 * the turn that was current when it connected has ended. Reads only what the client takes, in whole events. While there
 * is nothing to send nothing runs, and no buffer is held.
 */
export class EventStream implements FeedListener {
  private readonly feed: SessionFeed;
  private out: Writable | undefined;
  private provider = '';
  private turn = 0;
  private announcedTurn = 0;
  /** How often the session had been reported stale when the stream began. */
  private staleCount = 0;
  /** What comes after the cursor, asked for before the client wanted it. */
  private ahead: Promise<readonly Block[]> | undefined;
  /** The state that ends the stream. Looked at before rows are read: what has ended has all its rows in the log. */
  private ending: StreamState | undefined;
  private stateIsOld = false;
  private woken = false;
  /** Not before it has begun. */
  private pumping = true;
  /** Goes on with what waits for the client to take more, or for a moment to have passed. */
  private goOn: (() => void) | undefined;
  private finished = false;
  /** Since when the client has had enough, if it has; by the monotonic clock, milliseconds. */
  pausedSince: number | undefined;
  /** When something was last sent; by the monotonic clock, milliseconds. */
  lastSentAt = 0;

  private constructor(
    private readonly context: StreamContext,
    sessionId: string,
    private cursor: number,
  ) {
    this.feed = context.hub.join(sessionId, this);
  }

  /**
   * Looks up what the stream begins with. It has to be begun.
   * @param cursor the id of the last event that the client has had.
   * @returns `undefined` for a session that does not exist or is not this user's.
   */
  static async open(
    context: StreamContext,
    userId: string,
    sessionId: string,
    cursor: number,
  ): Promise<EventStream | undefined> {
    // It listens before it looks: what it sees holds until it is told otherwise.
    const stream = new EventStream(context, sessionId, cursor);
    try {
      const start = await context.states.connect(userId, sessionId, cursor);
      if (start) return stream.startFrom(start);
    } catch (error) {
      stream.leave();
      throw error;
    }
    stream.leave();
    return undefined;
  }

  private startFrom({ provider, announcedTurn, state }: StreamStart): this {
    this.provider = provider;
    this.turn = state.currentTurn;
    this.announcedTurn = announcedTurn;
    this.staleCount = state.staleCount;
    // A cursor beyond the log would make the client miss what comes.
    this.cursor = Math.min(this.cursor, state.lastId);
    this.see(state);
    return this;
  }

  /**
   * Sends what there is, and from now on what comes.
   * @param out where to: a response whose head is written, say. The stream ends it.
   */
  begin(out: Writable): void {
    // A client that left while its session was looked up is not told of again.
    if (this.finished || out.destroyed) {
      this.leave();
      out.end();
      this.context.closed(this);
      return;
    }
    this.out = out;
    out.once('close', () => {
      this.leave();
      this.context.closed(this);
    });
    const { provider, feed } = this;
    const first: StartEvent = { type: 'start', provider, session_id: feed.sessionId };
    this.send(encodeEvent(first), 1);
    this.pumping = false;
    this.run();
  }

  wake(stateChanged: boolean): void {
    if (stateChanged) this.stateIsOld = true;
    this.woken = true;
    this.run();
  }

  /** Says that the connection is alive, unless the client is behind anyway. */
  beat(): void {
    if (!this.finished && this.out?.writableLength === 0) this.send(HEARTBEAT, 0);
  }

  /** Ends the stream between two events; the client resumes elsewhere. */
  endNow(): void {
    if (this.finished) return;
    this.leave();
    this.out?.end();
  }

  private leave(): void {
    if (this.finished) return;
    this.finished = true;
    this.context.hub.leave(this.feed, this);
    this.goOn?.();
  }

  private run(): void {
    if (this.pumping || this.finished) return;
    this.pumping = true;
    this.pump().catch((error: Error) => this.out?.destroy(error));
  }

  /** Moves on until there is nothing new. */
  private async pump(): Promise<void> {
    while (!this.finished) {
      this.woken = false;
      const blocks = await this.readOn();
      if (this.finished) return;
      if (blocks === undefined) {
        await this.pause(RETRY_MS);
      } else if (blocks.length > 0) {
        this.sendBlocks(blocks);
        if (this.out?.writableNeedDrain) await this.untilTaken();
      } else if (!this.finish() && !this.woken && !this.stateIsOld) {
        break;
      }
    }
    this.pumping = false;
  }

  /** @returns the next blocks, none when there is nothing new, `undefined` when the database did not answer. */
  private async readOn(): Promise<readonly Block[] | undefined> {
    try {
      if (this.stateIsOld) {
        this.stateIsOld = false;
        const state = await this.context.states.ofTurnUnscoped(this.feed.sessionId, this.turn);
        if (!state) {
          this.endNow();
          return undefined;
        }
        this.see(state);
      }
      const ahead = await this.ahead;
      this.ahead = undefined;
      if (this.isAtTheEnd()) return [];
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

  private see(state: StreamState): void {
    this.feed.expect(state.lastId);
    const isStale = state.status === 'running' && state.staleCount > this.staleCount;
    // What does not end the stream is not worth its memory.
    const ends = isStale || terminalEventOf(state, this.turn, 0) !== undefined;
    this.ending = ends ? state : undefined;
  }

  /** The turn has ended, and its last row was sent. */
  private isAtTheEnd(): boolean {
    const { ending, turn, cursor } = this;
    return (
      ending !== undefined && cursor >= ending.lastId && !!terminalEventOf(ending, turn, cursor)
    );
  }

  private sendBlocks(blocks: readonly Block[]): void {
    let size = 0;
    for (const { first, last, turn, isOutput, data } of blocks) {
      if (isOutput && turn > this.announcedTurn) {
        this.announcedTurn = turn;
        const begin: TurnStartEvent = { type: 'turn_start', id: first, turn };
        this.send(encodeEvent(begin), 1);
      }
      // Ids have no gaps within a turn.
      this.send(data, last - first + 1);
      this.cursor = last;
      size += data.length;
    }
    if (size >= READ_AHEAD_SIZE) this.readAhead();
  }

  private readAhead(): void {
    this.ahead = this.feed.read(this.cursor);
    this.ahead.catch(() => undefined);
  }

  /** Sends the terminal event if it is time. Only called when all rows up to now were sent. */
  private finish(): boolean {
    const { ending, cursor } = this;
    if (!ending || this.stateIsOld) return false;
    const event =
      terminalEventOf(ending, this.turn, cursor) ??
      staleEvent(cursor, this.context.staleAfterSeconds);
    this.send(encodeEvent(event, event.id), 1);
    this.endNow();
    return true;
  }

  private send(data: string | Buffer, events: number): void {
    const { figures } = this.context;
    figures.events += events;
    figures.bytes += typeof data === 'string' ? Buffer.byteLength(data) : data.length;
    this.lastSentAt = performance.now();
    this.out?.write(data);
  }

  /** Until the client has taken what it was sent. */
  private async untilTaken(): Promise<void> {
    // What the system takes off us at once is no reason to wait; and others want to be served in between.
    await new Promise(setImmediate);
    if (!this.out?.writableNeedDrain || this.finished) return;
    this.pausedSince = performance.now();
    this.context.figures.pauses += 1;
    this.out.once('drain', () => this.goOn?.());
    await this.pause();
    this.pausedSince = undefined;
  }

  private async pause(limitMs?: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = limitMs === undefined ? undefined : setTimeout(resolve, limitMs);
      this.goOn = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.goOn = undefined;
  }
}
