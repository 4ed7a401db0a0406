import { useEffect, useReducer, useRef, useState } from 'preact/hooks';
import type { ApiError } from '../api/client.js';
import { type Loaded, useLoaded } from './hooks.js';

/** The most that one request gives. */
const MOST = 1_000;
/** The most that is read again and again to be live, of a list that can be read in pages. */
const MOST_LIVE = 200;

/** Part of a list as the service sends it. */
export interface Page<T> {
  data: T[];
  has_more?: boolean;
}

/** The beginning of a list, which grows when the reader asks for more. */
export interface Pages<T> extends Loaded<Page<T>> {
  /** Loads more; `undefined` if there is no more. */
  more: (() => void) | undefined;
}

/** An item of a list. */
export interface Identified {
  id: string;
}

/**
 * Loads the beginning of a list, and again every `everyMs`.
 * @param key what is loaded: with another key the list begins anew
 * @param options `first`: how many items at first; `older`: reads what comes behind an item, for lists that have pages.
 *   What it gave is not read again.
 */
export function usePages<T extends Identified>(
  key: string,
  read: (limit: number, signal: AbortSignal) => Promise<Page<T>>,
  everyMs: number,
  options: { first?: number; older?: (after: string, limit: number) => Promise<Page<T>> } = {},
): Pages<T> {
  const { first = 50, older } = options;
  const most = older ? MOST_LIVE : MOST;
  const [grown, setGrown] = useState({ key, limit: first });
  const limit = grown.key === key ? grown.limit : first;
  const loaded = useLoaded(key, (signal) => read(limit, signal), everyMs);
  const known = useRef<{ key: string; page: Page<T> }>();
  const [, redraw] = useReducer((value: number) => value + 1, 0);
  const [failed, setFailed] = useState<ApiError>();
  const { reload } = loaded;
  useEffect(() => {
    // What is on screen stays there meanwhile.
    if (limit > first) reload();
    // Only when the reader asks for more.
    // oxlint-disable-next-line react-hooks/exhaustive-deps
  }, [limit]);
  if (known.current?.key !== key) known.current = undefined;
  if (loaded.data) known.current = { key, page: joined(loaded.data, known.current?.page) };
  const data = known.current?.page;
  const more = (): void => {
    const last = data?.data.at(-1);
    if (limit < most || !older || !last) {
      setGrown({ key, limit: Math.min(most, limit * 2) });
      return;
    }
    setFailed(undefined);
    older(last.id, most).then((page) => {
      const before = known.current;
      if (before?.key === key && before.page.data.at(-1)?.id === last.id) {
        known.current = { key, page: { ...page, data: [...before.page.data, ...page.data] } };
        redraw(undefined);
      }
    }, setFailed);
  };
  return {
    ...loaded,
    data,
    error: loaded.error ?? failed,
    more: data?.has_more && (older || limit < most) ? more : undefined,
  };
}

/** A list whose beginning was read again, with what is known to come behind it. */
function joined<T extends Identified>(beginning: Page<T>, known: Page<T> | undefined): Page<T> {
  const last = beginning.data.at(-1);
  const at = known?.data.findIndex(({ id }) => id === last?.id) ?? -1;
  // Where the two do not meet, something may be missing between them.
  if (!known || !beginning.has_more || at === -1 || at === known.data.length - 1) return beginning;
  return { ...known, data: [...beginning.data, ...known.data.slice(at + 1)] };
}
