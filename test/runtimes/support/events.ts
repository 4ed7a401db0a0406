import { request } from 'node:http';

/** An event of a session's stream. */
export interface StreamEvent {
  type: string;
  id?: number;
  turn?: number;
  stream?: string;
  data?: string;
  stage?: string;
  state?: string;
  duration_ms?: number;
  message?: string;
  code?: number;
}

const TERMINAL = ['exit', 'error', 'terminated', 'stale'];

/** Reads a stream until its terminal event; `each` sees the events as they come and ends the reading with `false`. */
export function readEvents(
  url: string,
  token: string,
  options: { since?: number; each?: (event: StreamEvent) => boolean | undefined } = {},
): Promise<StreamEvent[]> {
  const { since, each } = options;
  const events: StreamEvent[] = [];
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${token}`,
      ...(since === undefined ? {} : { 'last-event-id': String(since) }),
    };
    const outgoing = request(url, { headers, agent: false }, (response) => {
      if (response.statusCode !== 200) reject(new Error(`the stream gave ${response.statusCode}`));
      let rest = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        const frames = (rest + chunk).split('\n\n');
        rest = frames.pop() ?? '';
        for (const frame of frames) {
          const data = /^data: (.*)$/m.exec(frame)?.[1];
          if (data === undefined) continue;
          const event = JSON.parse(data) as StreamEvent;
          events.push(event);
          if (each?.(event) === false) outgoing.destroy();
        }
      });
      response.once('close', () => resolve(events));
    });
    outgoing.once('error', reject);
    outgoing.end();
  });
}

export function terminalOf(events: readonly StreamEvent[]): StreamEvent | undefined {
  return events.find(({ type }) => TERMINAL.includes(type));
}

/** What a turn wrote, both streams. */
export function outputOf(events: readonly StreamEvent[], turn?: number): string {
  return events
    .filter((event) => event.type === 'output' && (turn === undefined || event.turn === turn))
    .map(({ data }) => data)
    .join('');
}
