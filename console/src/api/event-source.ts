import { createParser } from 'eventsource-parser';
import { API_ROOT, ApiError, errorOf, type Schemas } from './client.js';

export type SessionEvent = Schemas['SessionEvent'];
export type TerminalEvent = Extract<
  SessionEvent,
  { type: 'exit' | 'error' | 'terminated' | 'stale' }
>;

/** How a stream is doing. `since` is when the connection was lost (`performance.now()`). */
export type Connection =
  { state: 'connecting' | 'live' | 'ended' } | { state: 'lost'; since: number };

export interface FollowOptions {
  sessionId: string;
  /** The id of the last event that is known. */
  after: number;
  signal: AbortSignal;
  onEvent: (event: SessionEvent) => void;
  /** One sentence about provisioning. */
  onComment: (text: string) => void;
  onConnection: (connection: Connection) => void;
}

const RETRY_MS = { first: 200, most: 5_000 };
/** Heartbeats come every 15 seconds; without anything for this long, the connection is dead. */
const SILENCE_MS = 45_000;

/**
 * Follows a session until a terminal event. After a disconnect it resumes after the last event that arrived, so nothing
 * is missed and nothing comes twice.
 * @returns the terminal event; `undefined` if the signal was aborted
 * @throws ApiError when the service refuses the stream for good.
 */
export async function follow(options: FollowOptions): Promise<SessionEvent | undefined> {
  const { signal, onConnection } = options;
  let last = options.after;
  let wait = RETRY_MS.first;
  let since: number | undefined;
  onConnection({ state: 'connecting' });
  while (!signal.aborted) {
    try {
      const terminal = await readOnce({
        ...options,
        after: last,
        onConnection: (connection) => {
          since = undefined;
          wait = RETRY_MS.first;
          onConnection(connection);
        },
        onEvent: (event) => {
          if (event.type === 'output' || event.type === 'stage') {
            // A server that repeats an event, or a proxy that replays a response.
            if (event.id <= last) return;
            last = event.id;
          }
          options.onEvent(event);
        },
      });
      if (terminal) return terminal;
    } catch (error) {
      if (signal.aborted) break;
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) {
        if (error.status !== 429) throw error;
      }
    }
    since ??= performance.now();
    onConnection({ state: 'lost', since });
    await pause(wait * (0.75 + Math.random() / 2), signal);
    wait = Math.min(wait * 2, RETRY_MS.most);
  }
  return undefined;
}

/** One connection. @returns the terminal event, `undefined` if the connection ended without one. */
async function readOnce(options: FollowOptions): Promise<SessionEvent | undefined> {
  const connection = new AbortController();
  const abort = (): void => connection.abort();
  options.signal.addEventListener('abort', abort, { once: true });
  let watchdog = setTimeout(abort, SILENCE_MS);
  try {
    const response = await fetch(`${API_ROOT}/sessions/${options.sessionId}/stream`, {
      signal: connection.signal,
      headers: { 'last-event-id': String(options.after) },
    });
    if (!response.ok) throw await errorOf(response);
    options.onConnection({ state: 'live' });
    let terminal: SessionEvent | undefined;
    const parser = createParser({
      onEvent: ({ data }) => {
        const event = JSON.parse(data) as SessionEvent;
        options.onEvent(event);
        if (isTerminal(event)) terminal = event;
      },
      onComment: (text) => {
        if (text !== 'heartbeat') options.onComment(text);
      },
    });
    const decoder = new TextDecoder();
    const reader = response.body?.getReader();
    for (;;) {
      const chunk = await reader?.read();
      if (!chunk || chunk.done) return terminal;
      clearTimeout(watchdog);
      watchdog = setTimeout(abort, SILENCE_MS);
      parser.feed(decoder.decode(chunk.value, { stream: true }));
    }
  } finally {
    clearTimeout(watchdog);
    options.signal.removeEventListener('abort', abort);
    abort();
  }
}

/** Whether the stream ends with this event. */
const isTerminal = (event: SessionEvent): event is TerminalEvent =>
  event.type === 'exit' ||
  event.type === 'error' ||
  event.type === 'terminated' ||
  event.type === 'stale';

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    // A laptop that wakes up, or a network that is back: at once instead of after the pause.
    addEventListener('online', done, { once: true });
    signal.addEventListener('abort', done, { once: true });
    function done(): void {
      clearTimeout(timer);
      removeEventListener('online', done);
      signal.removeEventListener('abort', done);
      resolve();
    }
  });
}
