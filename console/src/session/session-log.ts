import type { ApiError } from '../api/client.js';
import { type Connection, follow, type SessionEvent } from '../api/event-source.js';
import {
  type Entry,
  isObject,
  type LineReader,
  type NewEntry,
  type ToolCall,
  type Transcript,
} from './entries.js';
import { Lines } from './lines.js';
import { READERS } from './readers.js';

/** Consecutive raw output is joined to entries of up to about this size. */
const RAW_ENTRY_LENGTH = 16 * 1024;

/** A stage of provisioning as the timeline shows it. */
export interface Stage {
  id: number;
  name: string;
  state: 'started' | 'done' | 'failed';
  durationMs?: number;
  message?: string;
  /** When it started, if it started while the page watched. */
  startedAt?: number;
}

export type OutputEvent = Extract<SessionEvent, { type: 'output' }>;

/**
 * Everything that a session has sent, and what it says: events as they are, stages, and the transcript. One instance
 * per view; it owns the stream. Arrays only ever grow, so that views can draw what is new.
 */
export class SessionLog implements Transcript {
  readonly events: SessionEvent[] = [];
  readonly entries: Entry[] = [];
  readonly stages: Stage[] = [];
  connection: Connection = { state: 'connecting' };
  /** The current step of provisioning, as the stream describes it. */
  progress: string | undefined;
  /** Why the stream was refused. */
  error: ApiError | undefined;
  /** The id of the last event. */
  lastId = 0;
  private readonly tools = new Map<string, Entry & ToolCall>();
  private readonly stdout = new Lines();
  private readonly turnsSeen = new Set<number>();
  private readonly listeners = new Set<() => void>();
  private reader: LineReader | undefined;
  private controller: AbortController | undefined;
  private frame: number | undefined;
  private nextKey = 1;
  private connectedAt = 0;

  constructor(
    private readonly sessionId: string,
    private readonly onTerminal: (event: SessionEvent) => void,
  ) {}

  /** Starts to follow; does nothing if it already does. Called again when a further turn was queued. */
  start(): void {
    if (this.controller) return;
    const controller = new AbortController();
    this.controller = controller;
    this.connectedAt = performance.now();
    follow({
      sessionId: this.sessionId,
      after: this.lastId,
      signal: controller.signal,
      onEvent: (event) => this.take(event),
      onComment: (text) => {
        this.progress = text;
        this.notify();
      },
      onConnection: (connection) => {
        this.connection = connection;
        if (connection.state === 'live') this.error = undefined;
        this.notify();
      },
    })
      .then((terminal) => {
        if (controller.signal.aborted) return;
        this.controller = undefined;
        this.connection = { state: 'ended' };
        this.notify();
        if (terminal) this.onTerminal(terminal);
      })
      .catch((error: unknown) => {
        this.controller = undefined;
        this.connection = { state: 'ended' };
        this.error = error as ApiError;
        this.notify();
      });
  }

  stop(): void {
    this.controller?.abort();
    this.controller = undefined;
    if (this.frame !== undefined) cancelAnimationFrame(this.frame);
    this.frame = undefined;
    this.listeners.clear();
  }

  /** @returns a function that removes the listener. */
  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  add(entry: NewEntry): Entry {
    const added: Entry = { ...entry, key: this.nextKey, revision: 0 };
    this.nextKey += 1;
    this.entries.push(added);
    if (added.kind === 'tool') this.tools.set(added.id, added);
    return added;
  }

  changed(entry: Entry): void {
    entry.revision += 1;
  }

  tool(id: string): (Entry & ToolCall) | undefined {
    return this.tools.get(id);
  }

  last(): Entry | undefined {
    return this.entries.at(-1);
  }

  /** What comes within the first moments is mostly replayed, and says nothing about how long things took. */
  now(): number | undefined {
    const now = performance.now();
    return now - this.connectedAt > 1_000 ? now : undefined;
  }

  private take(event: SessionEvent): void {
    switch (event.type) {
      case 'start':
        if (this.events.length > 0) return;
        this.reader = READERS[event.provider];
        break;
      case 'turn_start':
        if (this.turnsSeen.has(event.turn)) return;
        this.turnsSeen.add(event.turn);
        // Runtimes number their calls anew in each turn.
        this.tools.clear();
        this.add({ kind: 'turn', turn: event.turn });
        break;
      case 'stage':
        this.lastId = event.id;
        this.takeStage(event);
        break;
      case 'output':
        this.lastId = event.id;
        this.progress = undefined;
        this.takeOutput(event);
        break;
      case 'stale':
        // The turn goes on, and the rest of a line that has only begun is still to come.
        this.progress = undefined;
        this.add({ kind: 'end', event });
        break;
      case 'exit':
      case 'error':
      case 'terminated':
        this.progress = undefined;
        this.readLine(this.stdout.take());
        this.add({ kind: 'end', event });
    }
    this.events.push(event);
    this.notify();
  }

  private takeStage(event: Extract<SessionEvent, { type: 'stage' }>): void {
    const open = this.stages.findLast(
      ({ name, state }) => name === event.stage && state === 'started',
    );
    if (event.state === 'started' || !open) {
      const startedAt = this.now();
      this.stages.push({
        id: event.id,
        name: event.stage,
        state: event.state,
        ...(startedAt !== undefined && { startedAt }),
      });
      return;
    }
    open.state = event.state;
    if (event.duration_ms !== undefined) open.durationMs = event.duration_ms;
    if (event.message !== undefined) open.message = event.message;
  }

  private takeOutput({ stream, data }: OutputEvent): void {
    if (stream === 'stderr' || !this.reader) this.addRaw(stream, data);
    else for (const line of this.stdout.push(data)) this.readLine(line);
  }

  private readLine(line: string): void {
    if (line.trim() === '') return;
    try {
      const value: unknown = JSON.parse(line);
      if (isObject(value) && this.reader?.read(value, this)) return;
    } catch {
      // No JSON, or not of the shape that its type promises: shown as it is.
    }
    this.addRaw('stdout', `${line}\n`);
  }

  private addRaw(stream: 'stdout' | 'stderr', data: string): void {
    const text = this.completeRaw(stream, data);
    if (text === '') return;
    const last = this.entries.at(-1);
    if (last?.kind === 'raw' && last.stream === stream && last.text.length < RAW_ENTRY_LENGTH) {
      last.text += text;
      this.changed(last);
    } else this.add({ kind: 'raw', stream, text });
  }

  /**
   * Output that resumes after a notice of silence may begin within a line: the rest of this line belongs before the
   * notice.
   * @returns what is left of the text
   */
  private completeRaw(stream: 'stdout' | 'stderr', text: string): string {
    if (!isSilence(this.entries.at(-1))) return text;
    const before = this.entries.findLast((entry) => !isSilence(entry));
    if (before?.kind !== 'raw' || before.stream !== stream || before.text.endsWith('\n'))
      return text;
    const end = text.indexOf('\n') + 1;
    const rest = end === 0 ? text : text.slice(0, end);
    before.text += rest;
    this.changed(before);
    return text.slice(rest.length);
  }

  /** Once per frame, however many events arrive. Hidden pages get no frames, and draw nothing either. */
  private notify(): void {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      for (const listener of this.listeners) listener();
    });
  }
}

/** Whether an entry only says that nothing came for a while. */
const isSilence = (entry: Entry | undefined): boolean =>
  entry?.kind === 'end' && entry.event.type === 'stale';
