const MAX_LINE_BYTES = 100;
/** A longer list of changes is refused, so that it is never larger in memory. */
export const MAX_LIST_BYTES = 8 * 1024 * 1024;

/** The name of a commit, or `null`. */
export function commitOf(text: string): string | null {
  return /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/.test(text) ? text : null;
}

type Output = AsyncGenerator<Buffer, void, undefined>;

/** Splits the output of a script, which is hostile, after its first line. */
export async function withFirstLine(output: Output): Promise<{ line: string; rest: Output }> {
  let begun = Buffer.alloc(0);
  for (;;) {
    const next = await output.next();
    if (next.done === true) throw new Error('the output has no first line');
    begun = Buffer.concat([begun, next.value]);
    const end = begun.indexOf(0x0a);
    if (end > MAX_LINE_BYTES || (end === -1 && begun.length > MAX_LINE_BYTES)) {
      await output.return();
      throw new Error('the first line is too long');
    }
    if (end === -1) continue;
    const first = begun.subarray(end + 1);
    const rest = async function* (): Output {
      try {
        if (first.length > 0) yield first;
        yield* output;
      } finally {
        await output.return();
      }
    };
    return { line: begun.toString('latin1', 0, end), rest: rest() };
  }
}

/** @throws if the output is longer */
export async function readAll(output: AsyncIterable<Buffer>, limit: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of output) {
    bytes += part.length;
    if (bytes > limit) throw new Error('the output is too long');
    parts.push(part);
  }
  return Buffer.concat(parts);
}

/** @throws if the output has another length than it said */
export async function* exactly(
  output: AsyncIterable<Buffer>,
  length: number,
): AsyncGenerator<Buffer, void, undefined> {
  let left = length;
  for await (const part of output) {
    left -= part.length;
    if (left < 0) throw new Error('the output is longer than it said');
    yield part;
  }
  if (left > 0) throw new Error('the output is shorter than it said');
}

/** Reads an output in pieces of given sizes. */
export class PieceReader {
  private left: Buffer = Buffer.alloc(0);

  constructor(private readonly output: Output) {}

  /** The next bytes. @throws if the output ends before */
  async take(length: number): Promise<Buffer> {
    const parts = [this.left];
    let bytes = this.left.length;
    while (bytes < length) {
      const next = await this.output.next();
      if (next.done === true) throw new Error('the output is shorter than it said');
      parts.push(next.value);
      bytes += next.value.length;
    }
    const all = Buffer.concat(parts);
    this.left = all.subarray(length);
    return all.subarray(0, length);
  }

  /** @throws if there is more, or the script failed */
  async end(): Promise<void> {
    if (this.left.length > 0 || (await this.output.next()).done !== true) {
      throw new Error('the output is longer than it said');
    }
  }
}
