/**
 * Keeps the end of a command's output in bounded memory. If output was cut, the rest begins with a whole line, because
 * a secret without its beginning would not be redacted.
 */
export class OutputTail {
  private kept: Buffer = Buffer.alloc(0);
  private isCut = false;

  /** @param limit bytes */
  constructor(private readonly limit: number) {}

  add(data: Buffer): void {
    const all = Buffer.concat([this.kept, data]);
    this.isCut ||= all.length > this.limit;
    this.kept = this.isCut ? Buffer.from(all.subarray(-this.limit)) : all;
  }

  toString(): string {
    if (!this.isCut) return this.kept.toString('utf8');
    const lineEnd = this.kept.indexOf('\n');
    return lineEnd === -1 ? '' : this.kept.toString('utf8', lineEnd + 1);
  }
}
