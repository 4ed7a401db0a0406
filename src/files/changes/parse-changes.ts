export const CHANGE_STATUSES = ['added', 'modified', 'deleted', 'renamed', 'type_changed'] as const;

/** A file that differs from the base. */
export interface ChangedFile {
  path: string;
  status: (typeof CHANGE_STATUSES)[number];
  /** Of a renamed file. */
  previousPath?: string;
  /** Lines; `null` for a binary file. */
  additions: number | null;
  deletions: number | null;
}

const STATUSES: Record<string, ChangedFile['status']> = {
  A: 'added',
  M: 'modified',
  D: 'deleted',
  R: 'renamed',
  C: 'added',
  T: 'type_changed',
};
const RAW = /^:\d{6} \d{6} [0-9a-f]+ [0-9a-f]+ ([AMDRCT])\d*$/;
const NUMSTAT = /^(\d+|-)\t(\d+|-)\t(.*)$/s;

/**
 * Parses the output of `git diff-index --raw --numstat -z`, which comes from inside a sandbox.
 * @throws Error if it is something else
 */
export function parseChanges(output: Buffer): ChangedFile[] {
  // Replaces bytes that are not UTF-8.
  const fields = output.toString('utf8').split('\0');
  if (fields.pop() !== '') throw new Error('the list of changes is cut');
  const files = new Map<string, ChangedFile>();
  let at = 0;
  const next = (): string => {
    const field = fields[at];
    if (field === undefined) throw new Error('the list of changes is cut');
    at += 1;
    return field;
  };
  while (at < fields.length) {
    const field = next();
    const raw = RAW.exec(field);
    const lines = NUMSTAT.exec(field);
    if (raw !== null) {
      const status = STATUSES[raw[1] ?? ''] ?? 'modified';
      const isPair = raw[1] === 'R' || raw[1] === 'C';
      const first = next();
      const path = isPair ? next() : first;
      const previous = status === 'renamed' ? { previousPath: first } : {};
      files.set(path, { path, status, ...previous, additions: null, deletions: null });
    } else if (lines !== null) {
      const [, additions = '', deletions = '', name = ''] = lines;
      // Of a renamed file, both names follow.
      if (name === '') next();
      const file = files.get(name === '' ? next() : name);
      if (file === undefined) throw new Error('the list of changes cannot be read');
      file.additions = countOf(additions);
      file.deletions = countOf(deletions);
    } else throw new Error('the list of changes cannot be read');
  }
  return [...files.values()];
}

function countOf(text: string): number | null {
  return text === '-' ? null : Math.min(Number(text), Number.MAX_SAFE_INTEGER);
}
