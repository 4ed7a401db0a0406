import { conflict } from '../common/errors.js';

/** The properties of a resource that optimistic concurrency needs. */
export interface Versioned {
  version: number;
  archivedAt: string | null;
}

/**
 * One PUT under optimistic concurrency (specification, section 9). `write` is conditional on the version that was read.
 * If another request was faster, it returns `undefined`, and the resource is read again to find the answer.
 * @returns the resource after the update, or as it was read if nothing changes.
 * @throws DomainError 409 if it is archived or has another version; the errors of `read` and `change`.
 */
export async function updateOptimistically<Current extends Versioned, Change>(options: {
  submittedVersion: number;
  archivedDetail: string;
  read: () => Promise<Current>;
  /** Returns what to write, or `undefined` if no value changes. */
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
