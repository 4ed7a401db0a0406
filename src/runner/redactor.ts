const REPLACEMENT = '[redacted]';
/** Shorter values would redact ordinary text. */
const MIN_LENGTH = 8;
/** A stretch of overlapping secrets that goes on for longer than this is cut rather than held back. Bytes. */
const MAX_HELD = 64 * 1024;

interface Interval {
  start: number;
  end: number;
}

/**
 * Finds known secrets in a byte stream that arrives in pieces. Works on bytes, so that positions in the stream stay
 * exact and a secret that is split anywhere is found.
 */
export class Redactor {
  private readonly secrets: readonly Buffer[];
  private readonly longest: number;

  /** @param secrets plain values; those of fewer than 8 characters are left alone, as they are not recognisable. */
  constructor(secrets: readonly string[]) {
    const variants = secrets.filter((secret) => secret.length >= MIN_LENGTH).flatMap(variantsOf);
    this.secrets = [...new Set(variants)].map((secret) => Buffer.from(secret));
    this.longest = Math.max(0, ...this.secrets.map((secret) => secret.length));
  }

  /** Redacts a text that is there as a whole. */
  redact(text: string): string {
    const bytes = Buffer.from(text);
    return this.secrets.length === 0 ? text : this.replace(bytes, bytes.length).toString('utf8');
  }

  /**
   * How many of the first bytes can be given out: behind them begins what may turn out to be a secret once more bytes
   * have come.
   */
  settled(bytes: Buffer): number {
    if (this.secrets.length === 0) return bytes.length;
    let hold = this.possibleStart(bytes);
    if (hold === bytes.length) return hold;
    // A found secret that the possible one overlaps must not be given out in part.
    for (const interval of this.find(bytes)) {
      if (interval.start < hold && hold < interval.end) hold = interval.start;
    }
    return bytes.length - hold > MAX_HELD ? bytes.length : hold;
  }

  /** The first `length` bytes, secrets replaced. */
  replace(bytes: Buffer, length: number): Buffer {
    const found = this.find(bytes.subarray(0, length));
    if (found.length === 0) return bytes.subarray(0, length);
    const parts: Buffer[] = [];
    let position = 0;
    for (const { start, end } of found) {
      parts.push(bytes.subarray(position, start), Buffer.from(REPLACEMENT));
      position = end;
    }
    parts.push(bytes.subarray(position, length));
    return Buffer.concat(parts);
  }

  /** Where the first suffix begins that is the beginning of a secret. */
  private possibleStart(bytes: Buffer): number {
    for (let at = Math.max(0, bytes.length - this.longest + 1); at < bytes.length; at += 1) {
      const length = bytes.length - at;
      const begins = this.secrets.some(
        (secret) =>
          secret.length > length &&
          bytes[at] === secret[0] &&
          bytes.compare(secret, 0, length, at) === 0,
      );
      if (begins) return at;
    }
    return bytes.length;
  }

  /** All occurrences, overlapping ones merged, in order. */
  private find(bytes: Buffer): Interval[] {
    const all: Interval[] = [];
    for (const secret of this.secrets) {
      for (let at = bytes.indexOf(secret); at !== -1; at = bytes.indexOf(secret, at + 1)) {
        all.push({ start: at, end: at + secret.length });
      }
    }
    all.sort((a, b) => a.start - b.start);
    const merged: Interval[] = [];
    for (const interval of all) {
      const last = merged.at(-1);
      if (last && interval.start < last.end) last.end = Math.max(last.end, interval.end);
      else merged.push(interval);
    }
    return merged;
  }
}

/** A secret also shows as JSON writes it, and each line of a long one on its own. */
function variantsOf(secret: string): string[] {
  const lines = secret.includes('\n')
    ? secret.split(/\r?\n/).filter((line) => line.trim().length >= 2 * MIN_LENGTH)
    : [];
  return [secret, JSON.stringify(secret).slice(1, -1), ...lines];
}
