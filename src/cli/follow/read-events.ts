import { createParser } from 'eventsource-parser';
import type {
  OutputEvent,
  StageEvent,
  StartEvent,
  TerminalEvent,
  TurnStartEvent,
} from '../../streaming/dto/session-event.dto.js';

/** An event of a session's stream. */
export type SessionStreamEvent =
  StartEvent | StageEvent | TurnStartEvent | OutputEvent | TerminalEvent;

/** What comes on a stream: an event, or the sign that the connection is alive. */
export type StreamItem = SessionStreamEvent | 'heartbeat';

const TERMINAL = new Set<string>(['exit', 'error', 'terminated', 'stale']);

export function isTerminal(event: SessionStreamEvent): event is TerminalEvent {
  return TERMINAL.has(event.type);
}

/** The cursor to resume from after this event; `undefined` where it does not move it. */
export function cursorAfter(event: SessionStreamEvent): number | undefined {
  return event.type === 'start' || event.type === 'turn_start' ? undefined : event.id;
}

/** Takes a stream of Server-Sent Events apart. What does not end with a blank line has not come. */
export async function* readItems(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<StreamItem> {
  const items: StreamItem[] = [];
  const parser = createParser({
    onEvent: ({ data }) => items.push(JSON.parse(data) as SessionStreamEvent),
    onComment: () => items.push('heartbeat'),
  });
  const decoder = new TextDecoder();
  for await (const chunk of bytes) {
    parser.feed(decoder.decode(chunk, { stream: true }));
    yield* items.splice(0);
  }
}
