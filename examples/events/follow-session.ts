// Follows a session: prints its agent's output, reconnects, and exits with the agent's exit code.
//
//   BASE_URL=http://127.0.0.1:8080 ACCESS_TOKEN=ast_... node follow-session.ts SESSION_ID [AFTER_ID]
//
// Needs only Node 24. You can copy followSession(); docs/events.md explains how it works.

export type SessionEvent =
  | { type: 'start'; provider: string; session_id: string }
  | {
      type: 'stage';
      id: number;
      stage: string;
      state: 'started' | 'done' | 'failed';
      duration_ms?: number;
      message?: string;
    }
  | { type: 'turn_start'; id: number; turn: number }
  | { type: 'output'; id: number; stream: 'stdout' | 'stderr'; data: string; turn: number }
  | { type: 'exit'; id: number; code: number }
  | { type: 'error' | 'terminated' | 'stale'; id: number; message: string };

export interface FollowOptions {
  baseUrl: string;
  /** The access token. Only use it on servers. */
  token: string;
  sessionId: string;
  /** The id of the last event that was handled. Default: none, so that all events are sent. */
  after?: number;
  signal?: AbortSignal;
}

/** Heartbeats come every 15 seconds. After three missing ones, the connection is considered dead. */
const SILENCE_MS = 45_000;
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 10_000;
const ENDED = new Set(['exit', 'error', 'terminated']);

/**
 * Yields each event of a session once, up to the end of the latest turn, and reconnects as often as needed.
 * @throws Error with the service's reason if it rejects the request.
 */
export async function* followSession(options: FollowOptions): AsyncGenerator<SessionEvent> {
  const { baseUrl, token, sessionId, signal } = options;
  let cursor = String(options.after ?? 0);
  let wait = FIRST_WAIT_MS;
  let started = false;
  let turn = 0;
  for (;;) {
    const silence = new AbortController();
    const timer = setTimeout(() => silence.abort(), SILENCE_MS);
    try {
      const response = await fetch(`${baseUrl}/sessions/${sessionId}/stream`, {
        headers: {
          authorization: `Bearer ${token}`,
          accept: 'text/event-stream',
          'last-event-id': cursor,
        },
        signal: AbortSignal.any([silence.signal, ...(signal ? [signal] : [])]),
      });
      if (!response.ok || !response.body) {
        const reason = `${response.status} ${await response.text()}`;
        // 5xx: the service or a proxy is restarting. Other errors are permanent.
        if (response.status < 500) throw new Refused(reason);
        throw new Error(reason);
      }
      for await (const { id, data } of readFrames(response.body, () => timer.refresh())) {
        const event = JSON.parse(data) as SessionEvent;
        // The cursor is the id line, not the member `id`: that of turn_start is the id of the output that follows.
        if (id !== undefined) cursor = id;
        wait = FIRST_WAIT_MS;
        // Each connection begins with start, and the previous one may have been cut between turn_start and its output.
        if (event.type === 'start' && started) continue;
        if (event.type === 'turn_start' && event.turn <= turn) continue;
        if (event.type === 'start') started = true;
        if (event.type === 'turn_start') turn = event.turn;
        yield event;
        if (ENDED.has(event.type)) return;
      }
      // The stream ended without a terminal event, or with stale: the turn is still running, so reconnect.
    } catch (error) {
      if (error instanceof Refused || signal?.aborted) throw error;
    } finally {
      clearTimeout(timer);
    }
    await new Promise((resolve) => setTimeout(resolve, wait * (0.5 + Math.random() / 2)));
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

class Refused extends Error {}

/** Parses frames. A frame without its blank line was cut off, and is sent again. */
export async function* readFrames(
  body: ReadableStream<Uint8Array>,
  onBytes: () => void = () => {},
): AsyncGenerator<{ id?: string; data: string }> {
  const decoder = new TextDecoder();
  let rest = '';
  let id: string | undefined;
  let data: string[] = [];
  for await (const bytes of body) {
    onBytes();
    const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines.map((text) => text.replace(/\r$/, ''))) {
      if (line.startsWith('id:')) id = line.slice(3).trim();
      else if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
      else if (line === '') {
        if (data.length > 0) yield { ...(id !== undefined && { id }), data: data.join('\n') };
        id = undefined;
        data = [];
      }
      // Other lines are comments such as ": heartbeat", or fields of a later version.
    }
  }
}

if (import.meta.main) {
  const [sessionId = '', after = '0'] = process.argv.slice(2);
  const { BASE_URL: baseUrl = 'http://127.0.0.1:8080', ACCESS_TOKEN: token = '' } = process.env;
  // The exit code if the session ends without one.
  process.exitCode = 1;
  for await (const event of followSession({ baseUrl, token, sessionId, after: Number(after) })) {
    if (event.type === 'output') process[event.stream].write(event.data);
    else if (event.type === 'exit') process.exitCode = event.code;
    else if ('message' in event) process.stderr.write(`[${event.type}] ${event.message}\n`);
  }
}
