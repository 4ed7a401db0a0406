import { createParser } from 'eventsource-parser';
import type {
  OutputEvent,
  StageEvent,
  StartEvent,
  TerminalEvent,
  TurnStartEvent,
} from '../streaming/dto/session-event.dto.js';
import { styleText } from 'node:util';
import { duration } from './command-line.js';

/** An event of a session's stream. */
export type SessionStreamEvent =
  StartEvent | StageEvent | TurnStartEvent | OutputEvent | TerminalEvent;

/** An item of a stream: an event or a heartbeat. */
export type StreamItem = SessionStreamEvent | 'heartbeat';

const TERMINAL = new Set<string>(['exit', 'error', 'terminated', 'stale']);

export function isTerminal(event: SessionStreamEvent): event is TerminalEvent {
  return TERMINAL.has(event.type);
}

/** The cursor to resume from after this event; `undefined` if the event does not move the cursor. */
export function cursorAfter(event: SessionStreamEvent): number | undefined {
  return event.type === 'start' || event.type === 'turn_start' ? undefined : event.id;
}

/** Parses a stream of Server-Sent Events. Ignores an event that does not end with a blank line. */
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

type Style = Parameters<typeof styleText>[0];

const STAGE_WIDTH = 16;
/** A control character, including the rest of the sequence if it sets a colour. */
const COMMANDS = /\p{Cc}(?:\[[\d;]*m)?/gu;
const ESCAPE = '\u001B';

/** Formats events for reading in a terminal. */
export class EventPrinter {
  private atLineStart = true;
  private stagesMs = 0;

  /** @param style colours a text, or returns it unchanged. */
  constructor(
    private readonly write: (text: string) => void,
    private readonly style: (style: Style, text: string) => string,
  ) {}

  print(event: SessionStreamEvent): void {
    switch (event.type) {
      case 'start':
        return this.line(this.style('bold', `Session ${event.session_id}, ${event.provider}`));
      case 'stage':
        return this.stage(event);
      case 'turn_start':
        return this.line(this.style('dim', `── turn ${event.turn}`));
      case 'output':
        return this.output(event.data, event.stream);
      case 'exit':
        return event.code === 0
          ? this.line(this.style('green', '✓ exited with 0'))
          : this.line(this.style('red', `✗ exited with ${event.code}`));
      case 'error':
        return this.line(this.style('red', `✗ ${harmless(event.message)}`));
      case 'terminated':
        return this.line(this.style('yellow', `■ ${event.message}`));
      case 'stale':
        return this.remark(`${event.message}; waiting on`);
    }
  }

  /** Prints a remark about the stream that is not one of its events. */
  remark(text: string): void {
    this.line(this.style('yellow', `… ${harmless(text)}`));
  }

  private stage(event: SessionStreamEvent & { type: 'stage' }): void {
    const name = event.stage.padEnd(STAGE_WIDTH);
    const took = event.duration_ms === undefined ? '' : duration(event.duration_ms).padStart(9);
    this.stagesMs += event.duration_ms ?? 0;
    if (event.state === 'done') this.line(`${this.style('green', '✓')} ${name} ${took}`);
    else if (event.state === 'failed') {
      this.line(this.style('red', `✗ ${name} ${took}  ${harmless(event.message ?? '')}`));
    } else if (event.stage === 'runtime_start') {
      const total = duration(this.stagesMs).padStart(9);
      this.stagesMs = 0;
      this.line(this.style('cyan', `▶ ${name} ${total}  for the stages before it`));
    } else this.line(this.style('dim', `· ${event.stage}`));
  }

  private output(data: string, stream: 'stdout' | 'stderr'): void {
    const text = harmless(data);
    this.write(stream === 'stdout' ? text : this.style('yellow', text));
    this.atLineStart = text.endsWith('\n');
  }

  private line(text: string): void {
    this.write(`${this.atLineStart ? '' : '\n'}${text}\n`);
    this.atLineStart = true;
  }
}

/** Keeps colours and line breaks and removes other control sequences, because the agent wrote the text. */
function harmless(text: string): string {
  return text.replaceAll('\r\n', '\n').replaceAll(COMMANDS, (command) => {
    const [character = ''] = command;
    const rest = command.slice(1);
    if (character === '\n' || character === '\t') return command;
    return character === ESCAPE && rest !== '' ? command : `\uFFFD${rest}`;
  });
}
