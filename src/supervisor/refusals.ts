import { closeSync, readSync, writeSync } from 'node:fs';
import { openPlainFile, type LaunchFolder } from './launch-folder.js';

/** A name (or an address without a name) that a sandbox tried to reach and was refused. */
export interface RefusalEvent {
  kind: 'refused';
  /** The name as the sandbox requested it, so it is not trustworthy. At most 255 characters. */
  name: string;
  /** Absent when the name was only looked up. */
  port?: number;
  why: string;
  /** The number of earlier events that were suppressed by the rate limit. */
  suppressed?: number;
}

const MAX_NAME = 255;
const WINDOW_MS = 10_000;

/** Forwards at most `perWindow` refusals in ten seconds, so that a sandbox cannot flood the log. */
export class RefusalLog {
  private windowStart = Number.NEGATIVE_INFINITY;
  private written = 0;
  private suppressed = 0;

  constructor(
    private readonly sink: (event: RefusalEvent) => void,
    private readonly perWindow = 20,
    private readonly now: () => number = () => performance.now(),
  ) {}

  refused(event: { name: string; port?: number; why: string }): void {
    if (this.now() - this.windowStart >= WINDOW_MS) {
      this.windowStart = this.now();
      this.written = 0;
    }
    if (this.written >= this.perWindow) {
      this.suppressed += 1;
      return;
    }
    this.written += 1;
    const suppressed = this.suppressed;
    this.suppressed = 0;
    this.sink({
      kind: 'refused',
      ...event,
      name: event.name.slice(0, MAX_NAME),
      ...(suppressed > 0 ? { suppressed } : {}),
    });
  }
}

/** Formats a refusal as text. */
export function describeRefusal({ name, port, why, suppressed }: RefusalEvent): string {
  const more = suppressed === undefined ? '' : ` (and ${suppressed} more before it)`;
  return `${JSON.stringify(name)}${port === undefined ? '' : ` port ${port}`}: ${why}${more}`;
}

const STDERR = 2;
const MAX_BYTES = 64 * 1024;
const MARK = 'refused ';

/** Records in the launch's log that a connection of its sandbox was refused. For supervisors. */
export function recordRefusal(event: RefusalEvent): void {
  try {
    writeSync(STDERR, `${MARK}${JSON.stringify(event)}\n`);
  } catch {
    // A full disk is no reason to end the launch.
  }
}

/** Describes the destinations that a launch was refused, each once, from the beginning of its log. */
export function readRefusals(folder: LaunchFolder): string[] {
  const fd = openPlainFile(folder.log);
  if (fd === null) return [];
  try {
    const buffer = Buffer.alloc(MAX_BYTES);
    const text = buffer.toString('utf8', 0, readSync(fd, buffer, 0, MAX_BYTES, 0));
    const events = text
      .split('\n')
      .slice(0, -1)
      .filter((line) => line.startsWith(MARK))
      .map((line) => JSON.parse(line.slice(MARK.length)) as RefusalEvent);
    return [...new Set(events.map(describeRefusal))];
  } finally {
    closeSync(fd);
  }
}
