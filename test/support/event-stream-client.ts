import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { PATIENCE_MS } from './patience.js';

/** An event as a client reads it. Which members there are depends on `type`. */
export interface StreamEvent {
  type: string;
  id: number;
  turn: number;
  stream: 'stdout' | 'stderr';
  data: string;
  stage: string;
  state: string;
  duration_ms: number;
  message: string;
  code: number;
  provider: string;
  session_id: string;
}

export interface StreamOptions {
  token?: string;
  /** `Last-Event-ID`. */
  lastEventId?: number | string;
  since?: number | string;
  headers?: Record<string, string>;
}

/** Only what hangs takes so long, however busy the machine is. Milliseconds. */

const TERMINAL = new Set(['exit', 'error', 'terminated', 'stale']);
const MEMBERS: Record<string, string> = {
  start: 'provider,session_id,type',
  turn_start: 'id,turn,type',
  output: 'data,id,stream,turn,type',
  exit: 'code,id,type',
  error: 'id,message,type',
  terminated: 'id,message,type',
  stale: 'id,message,type',
  'stage started': 'id,stage,state,type',
  'stage done': 'duration_ms,id,stage,state,type',
  'stage failed': 'duration_ms,id,message,stage,state,type',
};

/**
 * One client of a session's stream. Checks every frame against the rules of the interface as it arrives; the first one
 * that breaks a rule fails whatever the test waits for next.
 */
export class EventStreamClient {
  readonly events: StreamEvent[] = [];
  /** Whole frames as they came, heartbeats left out. */
  readonly frames: string[] = [];
  heartbeats = 0;
  /** Comments other than heartbeats, without their colon. */
  readonly comments: string[] = [];
  status = 0;
  headers: Record<string, string | string[] | undefined> = {};
  /** The body, when the answer was no stream. */
  refusal = '';
  /** How many bytes have arrived. */
  received = 0;
  private broken: Error | undefined;
  private closed = false;
  private rest = '';
  private lastId: number;
  private announced: StreamEvent | undefined;
  private turn = 0;
  private waiting: (() => void)[] = [];
  private readonly outgoing: ClientRequest;
  private incoming: IncomingMessage | undefined;

  constructor(
    url: string,
    private readonly options: StreamOptions = {},
  ) {
    const { token, lastEventId, since, headers } = options;
    this.lastId = Number(lastEventId ?? since ?? 0);
    const target = new URL(url);
    if (since !== undefined) target.searchParams.set('since', String(since));
    this.outgoing = request(
      target,
      {
        agent: false,
        headers: {
          ...(token !== undefined && { authorization: `Bearer ${token}` }),
          ...(lastEventId !== undefined && { 'last-event-id': String(lastEventId) }),
          ...headers,
        },
      },
      (incoming) => this.receive(incoming),
    );
    this.outgoing.on('error', (error) => this.close(error));
    this.outgoing.end();
  }

  /** The text of all output events, of one stream if it is named. */
  output(stream?: 'stdout' | 'stderr'): string {
    return this.events
      .filter((event) => event.type === 'output' && (!stream || event.stream === stream))
      .map((event) => event.data)
      .join('');
  }

  /** The stages as `name state`, in order. */
  stages(): string[] {
    return this.events
      .filter(({ type }) => type === 'stage')
      .map(({ stage, state }) => `${stage} ${state}`);
  }

  /** The terminal event. */
  get last(): StreamEvent {
    const last = this.events.at(-1);
    if (!last || !TERMINAL.has(last.type)) throw new Error(`no terminal event: ${this.summary()}`);
    return last;
  }

  /** Waits until the server has closed the stream, after a terminal event if it was a stream. */
  async end(limitMs = PATIENCE_MS): Promise<this> {
    await this.waitFor(() => this.closed, 'the end of the stream', limitMs);
    if (this.status === 200) void this.last;
    return this;
  }

  /** Waits until the stream is over, with or without a terminal event, but never in the middle of a frame. */
  async cut(limitMs = PATIENCE_MS): Promise<this> {
    await this.waitFor(() => this.closed, 'the end of the connection', limitMs);
    return this;
  }

  async until(what: (client: this) => boolean, limitMs = PATIENCE_MS): Promise<this> {
    await this.waitFor(() => what(this), `what was waited for (${what.toString()})`, limitMs);
    return this;
  }

  pause(): void {
    this.incoming?.pause();
  }

  resume(): void {
    this.incoming?.resume();
  }

  /** Goes away without a word. */
  async abort(): Promise<void> {
    this.closed = true;
    if (this.outgoing.closed) return;
    const gone = new Promise((resolve) => this.outgoing.once('close', resolve));
    this.outgoing.destroy();
    await gone;
  }

  private receive(incoming: IncomingMessage): void {
    this.incoming = incoming;
    this.status = incoming.statusCode ?? 0;
    this.headers = incoming.headers;
    incoming.setEncoding('utf8');
    incoming.on('data', (text: string) => {
      this.received += text.length;
      try {
        if (this.status === 200) this.read(text);
        else this.refusal += text;
      } catch (error) {
        this.broken ??= error as Error;
      }
      this.wake();
    });
    incoming.on('end', () => {
      this.close(this.rest === '' ? undefined : new Error(`the stream ended in mid-frame`));
    });
    incoming.on('error', (error) => this.close(error));
    this.wake();
  }

  private read(text: string): void {
    const pieces = (this.rest + text).split('\n\n');
    this.rest = pieces.pop() ?? '';
    for (const frame of pieces) {
      if (frame === ': heartbeat') this.heartbeats += 1;
      else if (/^: [^\n]+$/.test(frame)) this.comments.push(frame.slice(2));
      else this.check(frame);
    }
  }

  private check(frame: string): void {
    const [, idLine, json] = /^(?:id: (\d+)\n)?data: (.*)$/.exec(frame) ?? [];
    if (json === undefined) throw new Error(`not a frame: ${JSON.stringify(frame.slice(0, 200))}`);
    const event = JSON.parse(json) as StreamEvent;
    const rule = (holds: boolean, what: string): void => {
      if (!holds) throw new Error(`${what}: ${frame.slice(0, 200)} after ${this.summary()}`);
    };
    const { type } = event;
    const previous = this.events.at(-1);
    rule((this.events.length === 0) === (type === 'start'), 'start is first and only first');
    rule(!previous || !TERMINAL.has(previous.type), 'nothing follows a terminal event');
    const kind = type === 'stage' ? `stage ${event.state}` : type;
    rule(MEMBERS[kind] === Object.keys(event).toSorted().join(','), 'members');
    if (type === 'start' || type === 'turn_start') rule(idLine === undefined, 'no id line');
    else rule(idLine === String(event.id), 'the id line has the id of the payload');
    if (this.announced) {
      rule(
        type === 'output' && event.id === this.announced.id && event.turn === this.announced.turn,
        'turn_start comes right before the first output of its turn',
      );
    } else if (type === 'output' && event.turn !== this.turn) {
      rule(this.turn === 0 && this.lastIdWasGiven(), 'a turn begins with turn_start');
    }
    if (type === 'turn_start') rule(event.turn > this.turn, 'turns rise');
    if (type === 'output' || type === 'stage' || type === 'turn_start') {
      rule(event.id > this.lastId, 'ids rise');
    }
    if (TERMINAL.has(type) && this.events.some(({ id }) => id !== undefined)) {
      rule(event.id === this.lastId, 'a terminal event has the id of the last row');
    }
    this.announced = type === 'turn_start' ? event : undefined;
    if (type === 'output') this.turn = event.turn;
    if (type === 'output' || type === 'stage') this.lastId = event.id;
    this.events.push(event);
    this.frames.push(frame);
  }

  private lastIdWasGiven(): boolean {
    return Number(this.options.lastEventId ?? this.options.since ?? 0) > 0;
  }

  private close(error?: Error): void {
    if (this.closed) return;
    this.closed = true;
    this.broken ??= error;
    this.wake();
  }

  private wake(): void {
    for (const wake of this.waiting.splice(0)) wake();
  }

  private async waitFor(done: () => boolean, what: string, limitMs: number): Promise<void> {
    const deadline = performance.now() + limitMs;
    for (;;) {
      if (this.broken) throw this.broken;
      if (done()) return;
      const left = deadline - performance.now();
      if (left <= 0 || this.closed) {
        await this.abort();
        throw new Error(`${what} did not come: ${this.summary()}`);
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.waiting.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  private summary(): string {
    return JSON.stringify(this.events.slice(-6)).slice(0, 1500);
  }
}
