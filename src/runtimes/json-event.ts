/** An event of a program's JSON output mode, as far as it is known. */
export type JsonEvent = Readonly<Record<string, unknown>>;

const MAX_REASON = 500;

/** @returns `undefined` for a line that is no JSON object: programs also print plain words. */
export function parseEvent(line: string): JsonEvent | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    return JSON.parse(line) as JsonEvent;
  } catch {
    return undefined;
  }
}

/** Text at a path of keys, shortened for a message; `undefined` where there is none. */
export function textAt(event: JsonEvent, ...path: string[]): string | undefined {
  let value: unknown = event;
  for (const key of path) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = (value as JsonEvent)[key];
  }
  return typeof value === 'string' && value !== '' ? value.slice(0, MAX_REASON) : undefined;
}
