import { createHash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { quote } from '../../common/shell-quote.js';
import { SecretAutomaton, SecretScanner, type Region } from './secret-automaton.js';

/** The scheme before a credential, in a header's value or in whole headers within variables and JSON. */
const SCHEME =
  /\b(Bearer|Basic|Token|ApiKey|Api-Key|Bot|GenieKey|AWS4-HMAC-SHA256|Digest|Negotiate)[ \t]+([^\s"'\\,;]+)/gi;
/** One word, white space, one word: a scheme of any name. */
const TWO_WORDS = /^\s*[A-Za-z][\w-]*[ \t]+(\S+)\s*$/;
/** The user and password of a URL. */
const URL_PASSWORD = /\b[a-z][a-z0-9+.-]{0,30}:\/\/[^\s/?#:@]*:([^\s/?#]+)@/gi;
/** `name=value` as in cookies and signed headers. */
const PAIR = /(?:^|[;,]\s*)[\w.-]+=("?)([^\s";,]+)\1/g;

/**
 * The parts of a secret that are secrets on their own, because they may be printed without the rest: the token after
 * `Bearer`, the password that `Basic` encodes, the password in a URL.
 */
export function partsOfSecret(value: string): string[] {
  const parts = new Set<string>();
  for (const [, scheme = '', credential = ''] of value.matchAll(SCHEME)) {
    parts.add(credential);
    if (scheme.toLowerCase() === 'basic')
      for (const part of decodedBasic(credential)) parts.add(part);
  }
  for (const [, password = ''] of value.matchAll(URL_PASSWORD)) {
    parts.add(password);
    parts.add(percentDecoded(password));
  }
  parts.delete(value);
  return [...parts].filter((part) => part !== '');
}

/**
 * Like {@link partsOfSecret}, for the value of an HTTP header, which may also have an unknown scheme, or pairs as in
 * cookies.
 */
export function partsOfHeader(value: string): string[] {
  const afterScheme = TWO_WORDS.exec(value)?.[1];
  const pairs = Array.from(value.matchAll(PAIR), (match) => match[2] ?? '');
  const parts = [...partsOfSecret(value), ...pairs];
  if (afterScheme !== undefined) parts.push(afterScheme);
  return [...new Set(parts)].filter((part) => part !== '' && part !== value);
}

/** `user:password` and the password; empty if the text is not in that format. */
function decodedBasic(credential: string): string[] {
  const text = Buffer.from(credential, 'base64').toString('utf8');
  const colon = text.indexOf(':');
  return colon === -1 || text.includes('\u{FFFD}') ? [] : [text, text.slice(colon + 1)];
}

function percentDecoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A queue of bytes in one buffer. Each byte is copied O(1) times. */
export class ByteQueue {
  private buffer = Buffer.alloc(0);
  private start = 0;
  private end = 0;

  get length(): number {
    return this.end - this.start;
  }

  append(bytes: Uint8Array): void {
    if (bytes.length > this.buffer.length - this.end) this.makeRoom(bytes.length);
    this.buffer.set(bytes, this.end);
    this.end += bytes.length;
  }

  /** The complete contents; valid until bytes are added or dropped. */
  view(): Buffer {
    return this.buffer.subarray(this.start, this.end);
  }

  drop(length: number): void {
    this.start += length;
    // An empty queue releases its memory, because most streams hold nothing back.
    if (this.start === this.end) {
      this.buffer = Buffer.alloc(0);
      this.start = this.end = 0;
    }
  }

  /** Moves the contents to the beginning of a buffer with at least twice the required size. */
  private makeRoom(more: number): void {
    const needed = 2 * (this.length + more);
    const target = needed > this.buffer.length ? Buffer.allocUnsafeSlow(needed) : this.buffer;
    this.buffer.copy(target, 0, this.start, this.end);
    this.end = this.length;
    this.start = 0;
    this.buffer = target;
  }
}

const REPLACEMENT = Buffer.from('[redacted]');
/** Shorter values would redact ordinary text. */
export const MIN_SECRET_LENGTH = 8;
/** Building an automaton yields to other work after this many bytes of secrets, which take a few milliseconds. */
const SLICE_BYTES = 64 * 1024;

/** Replaces known secrets in texts and streams. Time is linear in the text, whatever the secrets are. */
export class Redactor {
  private constructor(private readonly automaton: SecretAutomaton) {}

  /** Builds a redactor at once. @param secrets plain values; those of fewer than 8 characters are not redacted. */
  static of(secrets: readonly string[]): Redactor {
    const building = SecretAutomaton.build(patternsOf(secrets), Infinity);
    for (;;) {
      const { done, value } = building.next();
      if (done) return new Redactor(value);
    }
  }

  /**
   * Builds a redactor without holding up the event loop. Turns that run at the same time with the same secrets share one.
   * @param secrets plain values; those of fewer than 8 characters are not redacted, because they also occur in ordinary
   *   text
   */
  static async prepare(secrets: readonly string[]): Promise<Redactor> {
    const patterns = patternsOf(secrets);
    const key = digestOf(patterns);
    const shared = inUse.get(key)?.deref();
    if (shared) return shared;
    const building = SecretAutomaton.build(patterns, SLICE_BYTES);
    for (;;) {
      const { done, value } = building.next();
      if (done) {
        const redactor = new Redactor(value);
        inUse.set(key, new WeakRef(redactor));
        forgotten.register(redactor, key);
        return redactor;
      }
      await nextTurn();
    }
  }

  /** Redacts a complete text. */
  redact(text: string): string {
    if (this.automaton.isEmpty) return text;
    const bytes = Buffer.from(text);
    const scanner = this.scanner();
    scanner.scan(bytes);
    const regions = scanner.release(bytes.length);
    return regions.length === 0 ? text : replaceRegions(bytes, 0, regions).toString('utf8');
  }

  /** Scans a stream. @param released how many of its first bytes were released before */
  scanner(released = 0): SecretScanner {
    return new SecretScanner(this.automaton, released);
  }
}

/** The redactors of running turns, by their secrets. */
const inUse = new Map<string, WeakRef<Redactor>>();
const forgotten = new FinalizationRegistry((key: string) => {
  if (inUse.get(key)?.deref() === undefined) inUse.delete(key);
});

/** @param offset the position of the first byte */
export function replaceRegions(bytes: Buffer, offset: number, regions: readonly Region[]): Buffer {
  const parts: Buffer[] = [];
  let position = 0;
  for (const { start, end } of regions) {
    parts.push(bytes.subarray(position, start - offset), REPLACEMENT);
    position = end - offset;
  }
  parts.push(bytes.subarray(position));
  return Buffer.concat(parts);
}

/** All patterns to replace, without duplicates and in a fixed order. */
function patternsOf(secrets: readonly string[]): Buffer[] {
  const variants = secrets
    .filter((secret) => secret.length >= MIN_SECRET_LENGTH)
    .flatMap(variantsOf);
  return [...new Set(variants)].toSorted().map((secret) => Buffer.from(secret));
}

/**
 * A secret may also appear encoded as in JSON, in a URL, or in single quotes of a shell, because the service writes it
 * to files of the sandbox in these forms. Each line of a long secret may appear alone.
 */
function variantsOf(secret: string): string[] {
  const quoted = quote(secret).slice(1, -1);
  const lines = secret.includes('\n')
    ? [secret, quoted]
        .flatMap((text) => text.split(/\r?\n/))
        .filter((line) => line.trim().length >= 2 * MIN_SECRET_LENGTH)
    : [];
  const inJson = JSON.stringify(secret).slice(1, -1);
  return [secret, inJson, encodeURIComponent(secret.toWellFormed()), quoted, ...lines];
}

function digestOf(patterns: readonly Buffer[]): string {
  const hash = createHash('sha256');
  for (const pattern of patterns) hash.update(`${pattern.length}:`).update(pattern);
  return hash.digest('base64');
}
