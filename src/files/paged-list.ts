import type { FileEntry } from '../supervisor/files/file-access.js';

/** How long one page may take. */
const PAGE_LIMIT_MS = 60_000;
/** How long a list waits for the request of its next page. */
const KEPT_MS = 10_000;
/** How many lists wait at a time. Each is a process in a sandbox. */
const MAX_OF_USER = 2;
const MAX_OF_ALL = 32;

/** One page, each entry with its path. */
export interface Page {
  entries: (FileEntry & { path: string })[];
  hasMore: boolean;
}

/** Reads a folder in pages, and only as far as they are requested. */
export class PagedList {
  private readonly stop = new AbortController();
  private readonly entries: AsyncGenerator<FileEntry, void, undefined>;
  private next: Promise<IteratorResult<FileEntry, void>>;

  /** @param shown the path of an entry as clients see it */
  constructor(
    readonly sandboxId: string,
    private readonly shown: (name: string) => string,
    open: (signal: AbortSignal) => AsyncGenerator<FileEntry, void, undefined>,
  ) {
    this.entries = open(this.stop.signal);
    this.next = this.entries.next();
    this.next.catch(() => undefined);
  }

  async page(limit: number): Promise<Page> {
    const timer = setTimeout(() => this.stop.abort(), PAGE_LIMIT_MS);
    try {
      const entries: Page['entries'] = [];
      let { done = false, value } = await this.next;
      while (value !== undefined && !done && entries.length < limit) {
        entries.push({ ...value, path: this.shown(value.name) });
        this.next = this.entries.next();
        this.next.catch(() => undefined);
        ({ done = false, value } = await this.next);
      }
      return { entries, hasMore: !done };
    } finally {
      clearTimeout(timer);
    }
  }

  /** Ends the access. */
  close(): void {
    this.stop.abort();
    this.entries.return().catch(() => undefined);
  }
}

/**
 * Lists between two of their pages. Without them, each page would have to read the whole folder again. A list that is
 * not continued soon, or for which there is no room, is closed; its next page then reads the folder from there on.
 */
export class KeptLists {
  private readonly kept = new Map<
    string,
    { userId: string; list: PagedList; timer: NodeJS.Timeout }
  >();

  /** Keeps a list for the request with this key. */
  keep(key: string, userId: string, list: PagedList): void {
    this.drop(key);
    const own = [...this.kept].filter(([, one]) => one.userId === userId);
    // The first one waits longest.
    if (own.length >= MAX_OF_USER) this.drop(own[0]?.[0]);
    if (this.kept.size >= MAX_OF_ALL) this.drop(this.kept.keys().next().value);
    const timer = setTimeout(() => this.drop(key), KEPT_MS).unref();
    this.kept.set(key, { userId, list, timer });
  }

  /** @returns the list for the request with this key, which belongs to the caller from now on */
  take(key: string): PagedList | undefined {
    const found = this.kept.get(key);
    clearTimeout(found?.timer);
    this.kept.delete(key);
    return found?.list;
  }

  closeAll(): void {
    for (const key of [...this.kept.keys()]) this.drop(key);
  }

  private drop(key: string | undefined): void {
    if (key !== undefined) this.take(key)?.close();
  }
}
