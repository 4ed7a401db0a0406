// Follows a session: prints what its agent prints, survives disconnects, and exits as the agent did.
//
//   BASE_URL=http://127.0.0.1:8080 ACCESS_TOKEN=ast_... node follow-session.ts SESSION_ID [AFTER_ID]
//
// Needs Node 24 and nothing else. followSession() is made to be copied; docs/events.md says why it does what it does.

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
  /** Keep it on servers. */
  token: string;
  sessionId: string;
  /** The id of the last event that was handled. Default: none, so that everything comes. */
  after?: number;
  signal?: AbortSignal;
}

/** Heartbeats come every 15 seconds: after three missing ones, nobody is at the other end. */
const SILENCE_MS = 45_000;
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 10_000;
const ENDED = new Set(['exit', 'error', 'terminated']);

/**
 * Yields each event of a session once, up to the end of the turn that is the latest, however often the connection breaks.
 * @throws Error when the service refuses, with the reason that it gives.
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
        // 5xx: the service or a proxy is restarting. Anything else stays as it is.
        if (response.status < 500) throw new Refused(reason);
        throw new Error(reason);
      }
      for await (const { id, data } of readFrames(response.body, () => timer.refresh())) {
        const event = JSON.parse(data) as SessionEvent;
        // The cursor is the id line, not the member: turn_start has the id of the output that is still to come.
        if (id !== undefined) cursor = id;
        wait = FIRST_WAIT_MS;
        // Each connection begins with start, and a cut may have come between turn_start and its output.
        if (event.type === 'start' && started) continue;
        if (event.type === 'turn_start' && event.turn <= turn) continue;
        if (event.type === 'start') started = true;
        if (event.type === 'turn_start') turn = event.turn;
        yield event;
        if (ENDED.has(event.type)) return;
      }
      // Ended without saying why, or stale: the run goes on, and so does the reader.
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

/** Takes frames apart. One without its blank line was cut off, and comes again. */
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
      // Anything else is a comment such as ": heartbeat", or a field of a later version.
    }
  }
}

if (import.meta.main) {
  const [sessionId = '', after = '0'] = process.argv.slice(2);
  const { BASE_URL: baseUrl = 'http://127.0.0.1:8080', ACCESS_TOKEN: token = '' } = process.env;
  // What stands when the session ends without an exit code.
  process.exitCode = 1;
  for await (const event of followSession({ baseUrl, token, sessionId, after: Number(after) })) {
    if (event.type === 'output') process[event.stream].write(event.data);
    else if (event.type === 'exit') process.exitCode = event.code;
    else if ('message' in event) process.stderr.write(`[${event.type}] ${event.message}\n`);
  }
}
