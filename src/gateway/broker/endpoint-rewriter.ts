import { Transform, type TransformCallback } from 'node:stream';

/** The event that names the endpoint comes first. */
const MAX_SEARCHED_BYTES = 64 * 1024;
const NEWLINE = 0x0a;

/**
 * Replaces the address in the first event `endpoint` of server-sent events, and passes everything else on unchanged. It
 * reads each line once, however small the chunks are.
 */
export class EndpointRewriter extends Transform {
  /** The chunks of a line that has not ended; `undefined` when nothing more is searched. */
  private line: Buffer[] | undefined = [];
  private searched = 0;
  private isEndpoint = false;

  /** @param replace returns the address to use instead */
  constructor(private readonly replace: (address: string) => string) {
    super();
  }

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    let start = 0;
    while (this.line !== undefined) {
      const end = chunk.indexOf(NEWLINE, start) + 1;
      if (end === 0) break;
      this.line.push(chunk.subarray(start, end));
      this.endLine(this.line);
      start = end;
    }
    this.searched += chunk.length;
    const rest = chunk.subarray(start);
    if (this.line === undefined) this.push(rest);
    else if (rest.length > 0) this.line.push(rest);
    if (this.searched > MAX_SEARCHED_BYTES) this.stop();
    done();
  }

  override _flush(done: TransformCallback): void {
    this.stop();
    done();
  }

  private endLine(chunks: readonly Buffer[]): void {
    const line = Buffer.concat(chunks);
    const text = line.toString('latin1');
    const [, head, address = '', ending = ''] = /^(data: ?)([^\r\n]*)(\r?\n)$/.exec(text) ?? [];
    const isNamed = this.isEndpoint && head !== undefined;
    this.isEndpoint = /^event: ?endpoint\r?\n$/.test(text);
    this.line = isNamed ? undefined : [];
    this.push(isNamed ? Buffer.from(head + this.replace(address) + ending, 'latin1') : line);
  }

  /** Passes on what is left of a line, and everything after it. */
  private stop(): void {
    if (this.line !== undefined) this.push(Buffer.concat(this.line));
    this.line = undefined;
  }
}
