/** Flat labels of an agent. */
export type Metadata = Readonly<Record<string, string>>;

/**
 * Merges the labels of a PUT into the current ones: a text replaces or adds, an empty text deletes, what is not there
 * stays. Neither input is changed.
 */
export function mergeMetadata(current: Metadata, submitted: Metadata): Metadata {
  const merged = new Map([...Object.entries(current), ...Object.entries(submitted)]);
  // Object.fromEntries defines its members, so that a label called `__proto__` is one like any other.
  return Object.fromEntries([...merged].filter(([, value]) => value !== ''));
}
