import { styleText } from 'node:util';
import { duration } from '../output.js';
import type { SessionStreamEvent } from './read-events.js';

type Style = Parameters<typeof styleText>[0];

const STAGE_WIDTH = 16;
/** A character that commands a terminal, with what follows it where that is a colour. */
const COMMANDS = /\p{Cc}(?:\[[\d;]*m)?/gu;
const ESCAPE = '\u001B';

/** Turns events into what people read in a terminal. */
export class EventPrinter {
  private atLineStart = true;
  private stagesMs = 0;

  /** @param style colours a text, or leaves it as it is. */
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

  /** Something about the stream and not on it. */
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
      this.line(this.style('cyan', `▶ ${name} ${total}  of stages before it`));
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

/** Colours and line breaks are let through, other commands to the terminal are not: the text is the agent's, not ours. */
function harmless(text: string): string {
  return text.replaceAll('\r\n', '\n').replaceAll(COMMANDS, (command) => {
    const [character = ''] = command;
    const rest = command.slice(1);
    if (character === '\n' || character === '\t') return command;
    return character === ESCAPE && rest !== '' ? command : `\uFFFD${rest}`;
  });
}
