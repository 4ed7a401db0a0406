import { conflict } from './errors.js';

/** What optimistic concurrency needs to know of a resource. */
export interface Versioned {
  version: number;
  archivedAt: string | null;
}

/**
 * One PUT under optimistic concurrency (specification, section 9). `write` is conditional on the version that was read;
 * when somebody else was faster it returns `undefined`, and the next reading says what to answer.
 * @returns the resource afterwards; the one that was read when nothing changes.
 * @throws Refusal 409 when it is archived or its version is another one; whatever `read` and `change` throw.
 */
export async function updateOptimistically<Current extends Versioned, Change>(options: {
  submittedVersion: number;
  archivedDetail: string;
  read: () => Promise<Current>;
  /** What to write, or `undefined` when every value is as it was. */
  change: (current: Current) => Promise<Change | undefined> | Change | undefined;
  write: (current: Current, change: Change) => Promise<Current | undefined>;
}): Promise<Current> {
  for (;;) {
    const current = await options.read();
    if (current.archivedAt !== null) throw conflict(options.archivedDetail);
    if (current.version !== options.submittedVersion) {
      throw conflict(
        `Version mismatch: expected ${current.version}, got ${options.submittedVersion}`,
      );
    }
    const change = await options.change(current);
    if (change === undefined) return current;
    const written = await options.write(current, change);
    if (written) return written;
  }
}
