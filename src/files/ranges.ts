/** The part of a file that is sent. */
export interface Part {
  offset: number;
  length: number;
}

/**
 * The part that a `Range` header asks for (RFC 9110, section 14.2).
 * @returns the whole file if there is none, or one that is not understood, such as several ranges; `null` if no byte of
 *   the file is in it
 */
export function partOf(size: number, range: string | undefined): Part | null {
  const whole = { offset: 0, length: size };
  const [, first = '', last = ''] = /^bytes=[ \t]*(\d*)-(\d*)[ \t]*$/i.exec(range ?? '') ?? [];
  if (first === '' && last === '') return whole;
  if (first === '') {
    const length = Math.min(Number(last), size);
    return length === 0 ? null : { offset: size - length, length };
  }
  if (last !== '' && Number(last) < Number(first)) return whole;
  const offset = Number(first);
  if (offset >= size) return null;
  const end = last === '' ? size : Math.min(Number(last) + 1, size);
  return { offset, length: end - offset };
}

/** Whether a list of entity tags, as in `If-None-Match`, has this one; compared weakly. */
export function hasTag(list: string | undefined, tag: string): boolean {
  if (list === undefined) return false;
  return list.split(',').some((one) => ['*', tag].includes(one.trim().replace(/^W\//, '')));
}

/** `Content-Disposition` with a file name of any characters (RFC 6266). */
export function attachment(name: string): string {
  const plain = name.replaceAll(/[^\x20-\x7e]|["\\%]/g, '_');
  const encoded = encodeURIComponent(name.toWellFormed()).replaceAll(
    /['()*]/g,
    (character) => `%${character.codePointAt(0)?.toString(16).toUpperCase()}`,
  );
  return `attachment; filename="${plain}"; filename*=UTF-8''${encoded}`;
}
