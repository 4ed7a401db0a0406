import type { Item } from '../protocol/frames.js';
import { SandboxError } from '../sandbox-error.js';
import type { FileCall, FileRequest } from './file-call.js';

const TYPES = ['file', 'directory', 'symlink', 'other'] as const;

/** More than a folder can have. */
const MOST_ENTRIES = 2 ** 31 - 1;

/** A file, folder, link or something else in a sandbox. */
export interface FileEntry {
  type: (typeof TYPES)[number];
  /** In a list its name, in a tree its path below the root of the tree, else empty. Bytes that are not UTF-8 are U+FFFD. */
  name: string;
  /** Bytes of a file; 0 for everything else. */
  size: number;
  /** Permissions, with the set-id and sticky bits. */
  mode: number;
  modifiedAt: Date;
  /** Changes whenever the content may have changed. */
  version: string;
  /** Of a link. */
  target?: string;
}

/** A file that is open: what is read is of this very file, even if another one takes its name. */
export interface OpenFile {
  entry: FileEntry;
  /** To be called once at most. @throws SandboxError `failed` if the file has become shorter */
  read(offset: number, length: number): AsyncGenerator<Buffer, void, undefined>;
  close(): Promise<void>;
}

/** Calls a sandbox's file server; see `SandboxDriver.files`. */
export type CallFiles = (call: FileCall) => AsyncGenerator<Item, void, undefined>;

/** Access to the files of one sandbox. */
export class FileAccess {
  constructor(private readonly call: CallFiles) {}

  /**
   * The entries of a folder after a name, in the order of their names' bytes. A path that is no folder has one entry.
   * The folder is read once, and its entries no further than the caller reads them.
   */
  async *entries(options: {
    path: string;
    after: string;
    /** The maximum number of entries. Default: all. */
    limit?: number;
    signal: AbortSignal;
  }): AsyncGenerator<FileEntry, void, undefined> {
    const { signal, limit = MOST_ENTRIES, ...request } = options;
    let left = limit;
    for await (const item of this.items({ call: 'list', ...request, limit }, signal)) {
      left -= 1;
      if (left < 0) throw unreadable();
      yield entryOf(item);
    }
  }

  async open({ path, signal }: { path: string; signal: AbortSignal }): Promise<OpenFile> {
    const range = Promise.withResolvers<Buffer | null>();
    const input = async function* (): AsyncGenerator<Buffer, void, undefined> {
      const wanted = await range.promise;
      if (wanted !== null) yield wanted;
    };
    const items = this.call({ request: { call: 'open', path }, input: input(), signal });
    const first = await items.next();
    if (first.done === true) throw unreadable();
    return {
      entry: entryOf(first.value),
      read: async function* (offset, length) {
        range.resolve(Buffer.from(`${offset}\0${length}\0`));
        let left = length;
        for await (const { bytes } of items) {
          left -= bytes.length;
          if (left < 0) throw unreadable();
          yield bytes;
        }
        if (left > 0) throw new SandboxError('failed', 'the file was cut while it was read');
      },
      close: async () => {
        range.resolve(null);
        await items.return();
      },
    };
  }

  /**
   * Replaces a file, or makes it with its parent folders. Until it is complete, others see the file that was there.
   * Replaces a link, and not the file that it leads to.
   */
  async write(options: {
    path: string;
    mode: number | null;
    content: AsyncIterable<Buffer>;
    signal: AbortSignal;
  }): Promise<FileEntry> {
    const { path, mode, content, signal } = options;
    const request = { call: 'write', path, mode } as const;
    let written: FileEntry | undefined;
    for await (const item of this.call({ request, input: content, signal })) {
      written = entryOf(item);
    }
    if (written === undefined) throw unreadable();
    return written;
  }

  /** Removes a file, a link, or a folder with everything in it. */
  async remove({ path, signal }: { path: string; signal: AbortSignal }): Promise<void> {
    for await (const _none of this.items({ call: 'remove', path }, signal)) throw unreadable();
  }

  /**
   * Runs a script of the service in a folder with the agent's rights, a fixed environment and no input, and yields its
   * output. The agent may have changed every program that the script runs, so its output is hostile.
   * @param options.script at most 64 KiB
   * @throws SandboxError `failed` if it takes too long or exits with another code than 0
   */
  async *script(options: {
    path: string;
    script: string;
    limitMs: number;
    signal: AbortSignal;
  }): AsyncGenerator<Buffer, void, undefined> {
    const { path, script, limitMs, signal } = options;
    const open = Promise.withResolvers<void>();
    const input = async function* (): AsyncGenerator<Buffer, void, undefined> {
      yield Buffer.from(script);
      // The end of the input would end the script.
      await open.promise;
    };
    const request = { call: 'script', path, limitMs } as const;
    let exit: unknown;
    try {
      for await (const { header, bytes } of this.call({ request, input: input(), signal })) {
        exit = header['exit'];
        if (exit === undefined) yield bytes;
      }
    } finally {
      open.resolve();
    }
    if (exit === 0) return;
    throw new SandboxError('failed', `a script ended with exit code ${Number(exit)}`);
  }

  /** All entries below a folder, each file followed by as many bytes as its entry says. */
  async *tree({
    path,
    signal,
  }: {
    path: string;
    signal: AbortSignal;
  }): AsyncGenerator<FileEntry | Buffer, void, undefined> {
    let left = 0;
    for await (const item of this.items({ call: 'tree', path }, signal)) {
      if (left > 0) {
        left -= item.bytes.length;
        if (left < 0 || item.bytes.length === 0) throw unreadable();
        yield item.bytes;
      } else {
        const entry = entryOf(item);
        left = entry.size;
        yield entry;
      }
    }
    if (left > 0) throw unreadable();
  }

  private items(request: FileRequest, signal: AbortSignal): AsyncGenerator<Item, void, undefined> {
    return this.call({ request, input: nothing(), signal });
  }
}

async function* nothing(): AsyncGenerator<Buffer, void, undefined> {
  // A call without input.
}

function unreadable(): SandboxError {
  return new SandboxError('failed', 'the answer of the sandbox cannot be read');
}

/** Validates an entry, because it may come from inside a sandbox. */
function entryOf({ header, bytes }: Item): FileEntry {
  const { name, size, mode, mtime, identity, target } = header;
  const type = TYPES.find((one) => one === header['type']);
  const isEntry =
    type !== undefined &&
    bytes.length === 0 &&
    typeof name === 'string' &&
    Number.isSafeInteger(size) &&
    Number(size) >= 0 &&
    (type === 'file' || size === 0) &&
    Number.isSafeInteger(mode) &&
    typeof mtime === 'string' &&
    /^-?\d{1,16}\.\d{9}$/.test(mtime) &&
    typeof identity === 'string' &&
    /^[0-9a-f]{1,16}-[0-9a-f]{1,16}$/.test(identity);
  if (!isEntry) throw unreadable();
  return {
    type,
    name,
    size: Number(size),
    mode: Number(mode) & 0o7777,
    modifiedAt: dateOf(Number(mtime)),
    version: `${identity}-${mtime}-${Number(size).toString(16)}`,
    ...(typeof target === 'string' && { target }),
  };
}

/** The agent may set any time, also one that JSON's dates cannot express. */
function dateOf(seconds: number): Date {
  const LAST = Date.UTC(9999, 11, 31, 23, 59, 59, 999);
  return new Date(Math.min(Math.max(Math.floor(seconds * 1000), 0), LAST));
}
