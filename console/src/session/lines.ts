/** A line longer than this is not looked into: it is shown as it is, in pieces. */
const MAX_LINE = 4 * 2 ** 20;

/**
 * Joins chunks of output to lines. Nothing is ever dropped: what has no end of line yet is in {@link rest}.
 */
export class Lines {
  private parts: string[] = [];
  private length = 0;

  /** @returns the lines that the chunk completes, without their line feeds. */
  push(chunk: string): string[] {
    const lines: string[] = [];
    let from = 0;
    for (;;) {
      const at = chunk.indexOf('\n', from);
      if (at === -1) break;
      this.parts.push(chunk.slice(from, at));
      lines.push(this.take());
      from = at + 1;
    }
    const rest = chunk.slice(from);
    if (rest !== '') {
      this.parts.push(rest);
      this.length += rest.length;
    }
    if (this.length > MAX_LINE) lines.push(this.take());
    return lines;
  }

  /** @returns what is left at the end; empty if nothing. */
  take(): string {
    const line = this.parts.join('');
    this.parts = [];
    this.length = 0;
    return line;
  }
}
