const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Is this an id in the server's format? Anything else names no resource, which is a 404 and not a validation error. */
export function isUuid(text: string): boolean {
  return UUID.test(text);
}

/**
 * The boundary between what sandboxes return and what is stored: everything that an agent can choose (text, JSON,
 * numbers, lengths) passes through here before it goes into a statement. PostgreSQL refuses NUL and half surrogate pairs
 * in text and jsonb and integers beyond their column, and a refused value must never reach a statement that also carries
 * the output of other sessions.
 */

/** Nesting and members beyond these are dropped from JSON. */
const MAX_DEPTH = 8;
const MAX_MEMBERS = 1_000;
/** The longest text in JSON, and name of a member. Characters. */
const MAX_TEXT = 64 * 1024;
const MAX_NAME = 256;

export type Storable = string | number | boolean | null | Storable[] | { [name: string]: Storable };

/**
 * The text with NUL and half surrogate pairs replaced by U+FFFD.
 * @param maxLength in UTF-16 units; a surrogate pair at the cut is dropped as a whole.
 */
export function storableText(text: string, maxLength = Infinity): string {
  return cutText(text, maxLength).toWellFormed().replaceAll('\0', '\u{FFFD}');
}

/** The first `maxLength` UTF-16 units, or one less where that would cut a character in two. */
export function cutText(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  return text.slice(0, isPairAt(text, maxLength - 1) ? maxLength - 1 : maxLength);
}

/** The last `maxLength` UTF-16 units, or one less where that would cut a character in two. */
export function cutTextStart(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  const start = text.length - maxLength;
  return text.slice(isPairAt(text, start - 1) ? start + 1 : start);
}

function isPairAt(text: string, index: number): boolean {
  return (text.codePointAt(index) ?? 0) > 0xffff;
}

/** The value when it is an integer within the bounds, which default to what a number can hold exactly, else `undefined`. */
export function storableInteger(
  value: unknown,
  { min = 0, max = Number.MAX_SAFE_INTEGER } = {},
): number | undefined {
  return Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max
    ? (value as number)
    : undefined;
}

/**
 * A copy that fits into jsonb: with storable texts, finite numbers, and limits on length, depth and number of members.
 */
export function storableJson(value: unknown, depth = MAX_DEPTH): Storable {
  if (typeof value === 'string') return storableText(value, MAX_TEXT);
  if (typeof value === 'boolean') return value;
  if (typeof value === 'number') return Number.isFinite(value) ? value : null;
  if (typeof value !== 'object' || value === null || depth === 0) return null;
  if (Array.isArray(value)) {
    return value.slice(0, MAX_MEMBERS).map((item) => storableJson(item, depth - 1));
  }
  const members = Object.entries(value)
    .filter(([, member]) => member !== undefined)
    .slice(0, MAX_MEMBERS)
    .map(([name, member]) => [storableText(name, MAX_NAME), storableJson(member, depth - 1)]);
  return Object.fromEntries(members) as Storable;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;

/**
 * Finds JSON that is too expensive to parse. The cost of parsing grows with the number of values, is a hundred times
 * that of this scan, and blocks the event loop. Does not check the syntax.
 *
 * @param limits.values members of objects and items of lists
 * @returns a description of what exceeds a limit; `undefined` if nothing does
 */
export function jsonExcess(
  json: Buffer,
  limits: { depth: number; values: number },
): string | undefined {
  let depth = 0;
  let values = 0;
  for (let at = 0; at < json.length; at += 1) {
    // The index is always within the buffer.
    switch (json[at] as number) {
      case QUOTE:
        at = endOfString(json, at);
        break;
      case 0x5b: // [
      case 0x7b: // {
        depth += 1;
        values += 1;
        if (depth > limits.depth) return `nested deeper than ${limits.depth}`;
        break;
      case 0x5d: // ]
      case 0x7d: // }
        depth -= 1;
        break;
      // Each comma begins another member or item, so colons need not be counted.
      case COMMA:
        values += 1;
        break;
      default:
    }
    if (values > limits.values) return `more than ${limits.values} values`;
  }
  return undefined;
}

/** Strings up to this length are scanned byte by byte. Longer ones are searched by native code, which is faster. */
const SHORT_STRING = 64;

/** @returns the index of the closing quote, or the last index if there is none */
function endOfString(json: Buffer, quote: number): number {
  let at = quote + 1;
  for (;;) {
    const short = Math.min(at + SHORT_STRING, json.length);
    while (at < short && json[at] !== QUOTE) at += json[at] === BACKSLASH ? 2 : 1;
    if (at < short) return at;
    if (at >= json.length) return json.length;
    const next = json.indexOf(QUOTE, at);
    if (next === -1) return json.length;
    // A quote after an odd number of backslashes is escaped, and so a part of the string.
    let backslashes = 0;
    while (next - backslashes > at && json[next - backslashes - 1] === BACKSLASH) backslashes += 1;
    if (backslashes % 2 === 0) return next;
    at = next + 1;
  }
}
