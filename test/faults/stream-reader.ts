import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';

/** An event as it came. */
export interface StreamEvent {
  type: string;
  /** The `id:` line, which is the cursor; `turn_start` and `start` have none. */
  cursor?: number;
  id?: number;
  stream?: 'stdout' | 'stderr';
  data?: string;
  turn?: number;
  code?: number;
  message?: string;
  state?: string;
  stage?: string;
}

const TERMINAL = new Set(['exit', 'error', 'terminated', 'stale']);

/** What was wrong with a stream, in words. */
export class StreamFault extends Error {}

/**
 * Follows one session's stream to the end of its turn like a client does: whenever the connection ends without a
 * terminal event, it comes back with the last id that it has had. Complains about whatever breaks the framing's rules.
 */
export class StreamReader {
  readonly events: StreamEvent[] = [];
  connections = 0;
  bytes = 0;
  cursor: number;
  terminal: StreamEvent | undefined;
  private readonly options: {
    sessionId: string;
    token: string;
    /** Where to connect to next. */
    base: () => string;
    /** After how many milliseconds to hang up and come back; `undefined` to stay. */
    patience: () => number | undefined;
    signal: AbortSignal;
    onEvent?: (event: StreamEvent) => void;
  };
  private announced = 0;

  constructor(options: StreamReader['options'], cursor = 0) {
    this.options = options;
    this.cursor = cursor;
  }

  /** @throws StreamFault; the signal's reason. */
  async read(): Promise<StreamEvent> {
    const { signal } = this.options;
    while (!this.terminal) {
      signal.throwIfAborted();
      const answered = await this.connect();
      if (!this.terminal) await delay(answered ? 10 : 100);
    }
    return this.terminal;
  }

  /** @returns whether there was a stream. */
  private async connect(): Promise<boolean> {
    const { sessionId, token, base, patience, signal } = this.options;
    const patienceMs = patience();
    let hangUp: NodeJS.Timeout | undefined;
    let client: ClientRequest | undefined;
    const abort = (): void => void client?.destroy();
    signal.addEventListener('abort', abort);
    try {
      const response = await new Promise<IncomingMessage>((resolve, reject) => {
        client = request(
          `${base()}/sessions/${sessionId}/stream`,
          {
            agent: false,
            headers: {
              authorization: `Bearer ${token}`,
              ...(this.cursor > 0 ? { 'last-event-id': String(this.cursor) } : {}),
            },
          },
          resolve,
        );
        client.on('error', reject);
        client.end();
      });
      if (response.statusCode !== 200) {
        response.resume();
        if ([503, 500].includes(response.statusCode ?? 0)) return false;
        throw new StreamFault(`the stream answered ${response.statusCode}`);
      }
      this.connections += 1;
      if (patienceMs !== undefined) hangUp = setTimeout(() => client?.destroy(), patienceMs);
      // A server that is frozen says nothing at all; heartbeats come every two seconds.
      client?.setTimeout(10_000, abort);
      await this.take(response);
      return true;
    } catch (error) {
      if (error instanceof StreamFault) throw error;
      signal.throwIfAborted();
      return false;
    } finally {
      clearTimeout(hangUp);
      signal.removeEventListener('abort', abort);
      client?.destroy();
    }
  }

  private async take(response: IncomingMessage): Promise<void> {
    response.setEncoding('utf8');
    let buffered = '';
    let first = true;
    for await (const chunk of response as AsyncIterable<string>) {
      this.bytes += Buffer.byteLength(chunk);
      buffered += chunk;
      for (let end = buffered.indexOf('\n\n'); end !== -1; end = buffered.indexOf('\n\n')) {
        const frame = buffered.slice(0, end);
        buffered = buffered.slice(end + 2);
        if (frame.startsWith(':')) continue;
        if (this.terminal) throw new StreamFault(`an event after the terminal one: ${frame}`);
        const event = parse(frame);
        if (first !== (event.type === 'start'))
          throw new StreamFault(`"start" is not the first event, or not the only one: ${frame}`);
        first = false;
        if (event.type !== 'start') this.accept(event);
      }
    }
  }

  private accept(event: StreamEvent): void {
    const isTerminal = TERMINAL.has(event.type);
    if (event.type === 'turn_start') {
      if (event.cursor !== undefined) throw new StreamFault('turn_start has an id line');
      this.announced = event.turn ?? 0;
    } else {
      if (event.cursor === undefined || event.cursor !== event.id)
        throw new StreamFault(`the id line and the id differ: ${JSON.stringify(event)}`);
      if (isTerminal ? event.cursor < this.cursor : event.cursor <= this.cursor)
        throw new StreamFault(`id ${event.cursor} after ${this.cursor}`);
      this.cursor = event.cursor;
    }
    if (event.type === 'output' && event.turn !== this.announced && this.announced !== 0)
      throw new StreamFault(`output of turn ${event.turn} without its turn_start`);
    if (isTerminal) this.terminal = event;
    this.events.push(event);
    this.options.onEvent?.(event);
  }
}

function parse(frame: string): StreamEvent {
  const lines = frame.split('\n');
  const id = lines.find((line) => line.startsWith('id: '))?.slice(4);
  const data = lines.find((line) => line.startsWith('data: '))?.slice(6);
  if (data === undefined) throw new StreamFault(`a frame without data: ${frame}`);
  const event = JSON.parse(data) as StreamEvent;
  return id === undefined ? event : { ...event, cursor: Number(id) };
}
