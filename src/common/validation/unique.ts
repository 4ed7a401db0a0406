import { Located, problem } from './located.js';

/** No two objects of the list have the same text in `member`; objects without it are no concern of this check. */
export function Unique(member: string): PropertyDecorator {
  return Located((value) => {
    const seen = new Set<unknown>();
    return (Array.isArray(value) ? value : []).flatMap((item: unknown, index) => {
      const text = (item as Record<string, unknown> | null | undefined)?.[member];
      if (typeof text !== 'string') return [];
      if (seen.has(text)) {
        return [problem('duplicate', `Must be unique in the list`, [index, member])];
      }
      seen.add(text);
      return [];
    });
  });
}
