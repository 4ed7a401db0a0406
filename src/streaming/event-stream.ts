import type {
  StreamState,
  StreamStart,
  StreamStates,
} from '../sessions/stream-states.repository.js';
import type { StartEvent, TurnStartEvent } from './dto/session-event.dto.js';
import { staleEvent, terminalEventOf } from './final-events.js';
import type { LoopTurns } from '../common/loop-turns.js';
import { type Block, encodeComment, encodeEvent, HEARTBEAT } from '../event-log/frames.js';
import type { FeedHub, FeedListener, SessionFeed } from '../event-log/session-feed.js';
import type { Owner } from '../common/request-decorators.js';
import { type Output, StreamClient, type StreamStats } from './stream-client.js';

const RETRY_MS = 500;
/** Pages of up to about this many bytes are sent at once. Larger ones, as in replays, take turns with other users. */
const SMALL_BYTES = 16 * 1024;

/** The user of a stream, and the token that opened it. */
type StreamOwner = Pick<Owner, 'userId' | 'tokenId'>;

/** Shared by all streams of a process. */
export interface StreamContext {
  hub: FeedHub;
  states: StreamStates;
  stats: StreamStats;
  turns: LoopTurns;
  staleAfterSeconds: number;
  /** A client that reads nothing for this long is disconnected, and can resume later. 0: never. */
  stallMs: number;
  /** Called once for each stream, when its connection has closed. */
  closed(stream: EventStream): void;
}

/**
 * One client's stream: a cursor that moves along the session's log, first through stored events, then live, until the
 * turn that was current at the start has ended. Reads the log no faster than the client reads the stream, so it holds at
 * most one page for a slow client. An idle stream runs no code and holds no buffer.
 */
export class EventStream implements FeedListener {
  private readonly feed: SessionFeed;
  /** Set when the stream begins. */
  private client: StreamClient | undefined;
  private provider = '';
  private turn = 0;
  private announcedTurn = 0;
  /** How often the session had been reported stale when the stream began. */
  private staleCount = 0;
  /** The state that ends the stream. It is read before the log: a turn that has ended has all its rows in the log. */
  private ending: StreamState | undefined;
  private stateIsOld = false;
  /** Has no worker taken the turn yet? */
  private waiting = false;
  /** The last progress that was sent to the client. */
  private sentProgress: string | null = null;
  /** The session's state when the client connected, until the stream begins. */
  private connectedTo: StreamState | undefined;
  private woken = false;
  private pumping = false;
  private finished = false;

  private constructor(
    private readonly context: StreamContext,
    readonly owner: StreamOwner,
    sessionId: string,
    private cursor: number,
  ) {
    this.feed = context.hub.join(sessionId, this);
  }

  /**
   * Opens a stream and looks up its session. The caller must {@link begin} it, or end it with {@link endNow}.
   * @param cursor the id of the last event that the client has received.
   * @returns `undefined` if the session does not exist or belongs to another user.
   */
  static async open(
    context: StreamContext,
    owner: StreamOwner,
    sessionId: string,
    cursor: number,
  ): Promise<EventStream | undefined> {
    // The constructor subscribes before the look-up, so a change after the look-up is not missed.
    const stream = new EventStream(context, owner, sessionId, cursor);
    try {
      const start = await context.states.connect(owner.userId, sessionId, cursor);
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
    // With a cursor beyond the end of the log, the client would miss new events.
    this.cursor = Math.min(this.cursor, state.lastId);
    this.noteState(state);
    this.connectedTo = state;
    return this;
  }

  get pausedSince(): number | undefined {
    return this.client?.pausedSince;
  }

  get sessionId(): string {
    return this.feed.sessionId;
  }

  /** Has no worker taken the turn yet, as far as this stream knows? */
  get isWaiting(): boolean {
    return this.waiting && !this.finished;
  }

  get lastSentAt(): number {
    return this.client?.lastSentAt ?? 0;
  }

  /**
   * Sends the events that there are, and from now on each new one.
   * @param out for example a response whose head is written. The stream ends it.
   */
  begin(out: Output): void {
    // The client has disconnected while its session was looked up, so `out` emits no more `close`.
    if (this.finished || out.destroyed) {
      this.leave();
      out.end();
      this.context.closed(this);
      return;
    }
    this.client = new StreamClient(out, this.context.stats, this.context.stallMs);
    out.once('close', () => {
      this.leave();
      this.context.closed(this);
    });
    const { provider, feed } = this;
    const first: StartEvent = { type: 'start', provider, session_id: feed.sessionId };
    this.client.send(encodeEvent(first), 1);
    this.sayProgress(this.connectedTo?.progress ?? null);
    this.connectedTo = undefined;
    this.run();
  }

  wake(stateChanged: boolean): void {
    if (stateChanged) this.stateIsOld = true;
    this.woken = true;
    this.run();
  }

  /**
   * Sends the progress of the turn, unless it has not changed, as a comment: clients that read only events ignore it.
   * @param progress one sentence; `null` for none.
   */
  sayProgress(progress: string | null): void {
    if (progress === null || progress === this.sentProgress) return;
    if (!this.client || this.finished) return;
    this.sentProgress = progress;
    this.client.send(encodeComment(progress), 0);
  }

  /** Sends a heartbeat, unless the client still has earlier data to read. */
  beat(): void {
    if (!this.finished && this.client?.isUpToDate) this.client.send(HEARTBEAT, 0);
  }

  /**
   * Ends the stream between two events; the client can resume with another process.
   * @param reason sent as a comment, for people who read the raw stream.
   */
  endNow(reason?: string): void {
    if (this.finished) return;
    if (reason !== undefined) this.client?.send(encodeComment(reason), 0);
    this.leave();
    this.client?.end();
  }

  private leave(): void {
    if (this.finished) return;
    this.finished = true;
    this.context.hub.leave(this.feed, this);
    this.client?.stop();
  }

  private run(): void {
    const { client } = this;
    if (!client || this.pumping || this.finished) return;
    this.pumping = true;
    this.pump(client).catch((error: Error) => client.destroy(error));
  }

  /** Sends events until there are no new ones. */
  private async pump(client: StreamClient): Promise<void> {
    while (!this.finished) {
      this.woken = false;
      const blocks = await this.readOn();
      if (this.finished) return;
      if (blocks === undefined) {
        // A random delay, so that the streams do not all retry at the same moment.
        await client.pause(RETRY_MS * (1 + Math.random()));
      } else if (blocks.length > 0) {
        await this.sendInTurn(blocks);
        await client.untilTaken();
      } else if (!this.finish() && !this.woken && !this.stateIsOld) {
        break;
      }
    }
    this.pumping = false;
  }

  /** @returns the next blocks, none if there are no new events, `undefined` if the database did not answer. */
  private async readOn(): Promise<readonly Block[] | undefined> {
    try {
      if (this.stateIsOld) {
        this.stateIsOld = false;
        const state = await this.context.states.ofTurnUnscoped(this.feed.sessionId, this.turn);
        if (!state) {
          this.endNow();
          return undefined;
        }
        this.noteState(state);
        this.sayProgress(state.progress);
      }
      if (this.isAtTheEnd()) return [];
      const blocks = await this.feed.read(this.cursor);
      // A prompt may have started another turn since then; this stream ends with the turn that it began with.
      const end = blocks.findIndex((block) => block.turn > this.turn);
      return end === -1 ? blocks : blocks.slice(0, end);
    } catch {
      // During an outage of the database the client stays connected. Retrying loses no events.
      this.stateIsOld = true;
      return undefined;
    }
  }

  private noteState(state: StreamState): void {
    this.feed.expect(state.lastId);
    this.waiting = state.status === 'pending';
    const isStale = state.status === 'running' && state.staleCount > this.staleCount;
    // Only a state that ends the stream is kept, to save memory.
    const ends = isStale || terminalEventOf(state, this.turn, 0) !== undefined;
    this.ending = ends ? state : undefined;
  }

  /** Has the turn ended, and was its last row sent? */
  private isAtTheEnd(): boolean {
    const { ending, turn, cursor } = this;
    return (
      ending !== undefined && cursor >= ending.lastId && !!terminalEventOf(ending, turn, cursor)
    );
  }

  private async sendInTurn(blocks: readonly Block[]): Promise<void> {
    const bytes = blocks.reduce((sum, { data }) => sum + data.length, 0);
    if (bytes <= SMALL_BYTES) return this.sendBlocks(blocks);
    await this.context.turns.run(this.owner.userId, bytes, () => this.sendBlocks(blocks));
  }

  private sendBlocks(blocks: readonly Block[]): void {
    if (this.finished) return;
    for (const { first, last, turn, isOutput, data } of blocks) {
      if (isOutput && turn > this.announcedTurn) {
        this.announcedTurn = turn;
        const begin: TurnStartEvent = { type: 'turn_start', id: first, turn };
        this.client?.send(encodeEvent(begin), 1);
      }
      // Ids have no gaps within a turn.
      this.client?.send(data, last - first + 1);
      this.cursor = last;
    }
  }

  /** Sends the terminal event if the turn has ended. Call only after all rows were sent. */
  private finish(): boolean {
    const { ending } = this;
    if (!ending || this.stateIsOld) return false;
    // The session's last id, even if retention has purged the rows up to it.
    const lastId = Math.max(this.cursor, ending.lastId);
    const event =
      terminalEventOf(ending, this.turn, lastId) ??
      staleEvent(lastId, this.context.staleAfterSeconds);
    this.client?.send(encodeEvent(event, event.id), 1);
    this.endNow();
    return true;
  }
}
