/** A name, or an address without one, that a sandbox tried to reach and was not let. */
export interface RefusalEvent {
  kind: 'refused';
  /** What the sandbox asked for, as it asked: not to be trusted. At most 255 characters. */
  name: string;
  /** Absent when the name was only looked up. */
  port?: number;
  why: string;
  /** How many events before this one were left out for being too many. */
  suppressed?: number;
}

const MAX_NAME = 255;
const WINDOW_MS = 10_000;

/** Passes refusals on, at most `perWindow` in ten seconds, so that a sandbox cannot flood the log. */
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

/** A refusal in words. */
export function describeRefusal({ name, port, why, suppressed }: RefusalEvent): string {
  const more = suppressed === undefined ? '' : ` (and ${suppressed} more before it)`;
  return `${JSON.stringify(name)}${port === undefined ? '' : ` port ${port}`}: ${why}${more}`;
}
