import { Readable } from 'node:stream';
import type { ListRequest, Pages } from './list-request.js';

/** How many pages are read and encoded at a time, over all users. */
const PRODUCING = 4;
/** The most characters of untaken pages that the lists of one user may hold. */
const USER_CHARACTERS = 64 * 2 ** 20;

/** Permission to produce one page. */
interface Share {
  /** Reports the size of the page, which counts until it is released. */
  produced(characters: number): void;
  release(): void;
}

/** Bounds the memory that lists of a process use, and keeps one user's slow clients from delaying other users. */
export class ListBudget {
  private producing = 0;
  private readonly held = new Map<string, number>();
  private waiting: (() => void)[] = [];

  /** Waits until another page of this user may be produced. */
  async take(userId: string): Promise<Share> {
    while (this.producing >= PRODUCING || (this.held.get(userId) ?? 0) >= USER_CHARACTERS) {
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    }
    this.producing += 1;
    let size: number | undefined;
    return {
      produced: (characters) => {
        size = characters;
        this.producing -= 1;
        this.hold(userId, characters);
      },
      release: () => {
        if (size === undefined) this.producing -= 1;
        else this.hold(userId, -size);
        this.wake();
      },
    };
  }

  private hold(userId: string, characters: number): void {
    const held = (this.held.get(userId) ?? 0) + characters;
    if (held > 0) this.held.set(userId, held);
    else this.held.delete(userId);
    this.wake();
  }

  private wake(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }
}

/** A client that reads nothing of a pending answer for this long is disconnected. */
export const STALL_MS = 60_000;

/** What the lists of this process share. */
const budget = new ListBudget();

/**
 * Writes a list as JSON, page by page. It reads the next page when the client has read the one before, so a list of any
 * size needs the memory of one page. A list that fits into one page is returned as text, with a Content-Length. If a
 * page cannot be read, the connection is reset, so that the client does not mistake a part for the whole list.
 * @param pages the pages of the list; with one item more than the client's limit.
 * @param present an item as the client sees it.
 */
export async function listBody<Row>(
  request: ListRequest,
  pages: Pages<Row>,
  present: (row: Row) => object,
): Promise<string | Readable> {
  const texts = textsOf(request, pages, present);
  const first = await texts.next();
  if (first.done || first.value.complete) {
    await texts.return(undefined);
    return first.done ? '' : first.value.text;
  }
  return streamOf(request, first.value.text, texts);
}

interface Text {
  text: string;
  complete: boolean;
}

function streamOf(request: ListRequest, first: string, rest: AsyncGenerator<Text, void>): Readable {
  const { socket } = request.raw;
  const stream = Readable.from(joined(request, first, rest), {
    objectMode: false,
    highWaterMark: 1,
  });
  const destroy = (): void => void stream.destroy();
  // Node disconnects the client after this time. The next request of the connection restores Node's own limit.
  socket.setTimeout(STALL_MS);
  socket.once('close', destroy);
  stream.once('close', () => {
    socket.off('close', destroy);
    // Also if nothing was read of the list yet, because it holds a share of the budget.
    void rest.return(undefined);
  });
  return stream;
}

async function* joined(
  request: ListRequest,
  first: string,
  rest: AsyncGenerator<Text, void>,
): AsyncGenerator<Buffer> {
  yield Buffer.from(first);
  try {
    for await (const { text } of rest) yield Buffer.from(text);
  } catch (error) {
    request.failed(error);
    throw error;
  }
}

/** The pieces of the answer. Each one's share of the budget is released when the next one is requested. */
async function* textsOf<Row>(
  { userId, limit, after }: ListRequest,
  pages: Pages<Row>,
  present: (row: Row) => object,
): AsyncGenerator<Text, void> {
  const paged = limit !== undefined || after !== undefined;
  const source = pages[Symbol.asyncIterator]();
  let left = limit ?? Infinity;
  let separator = '{"data":[';
  try {
    for (;;) {
      const share = await budget.take(userId);
      try {
        const { value, done } = await source.next();
        const page = done ? { rows: [], complete: true } : value;
        const rows = page.rows.slice(0, left);
        const hasMore = page.rows.length > left;
        const complete = page.complete || hasMore;
        let text = '';
        for (const row of rows) {
          text += separator + JSON.stringify(present(row));
          separator = ',';
        }
        left -= rows.length;
        if (complete) {
          text += separator === ',' ? ']' : `${separator}]`;
          text += paged ? `,"has_more":${hasMore}}` : '}';
        }
        share.produced(text.length);
        yield { text, complete };
        if (complete) return;
      } finally {
        share.release();
      }
    }
  } finally {
    await source.return?.();
  }
}
