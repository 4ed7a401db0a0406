import { useEffect, useRef, useState } from 'preact/hooks';
import type { ApiError } from '../api/client.js';

/** The result of a request that is repeated while its view is open. */
export interface Loaded<T> {
  data: T | undefined;
  error: ApiError | undefined;
  /** Requests again now. */
  reload: () => void;
}

/**
 * Loads something, and again every `everyMs` while the page is visible. What was loaded stays on screen while it is
 * loaded again, unless `key` changes.
 * @param key what is loaded; `undefined` loads nothing
 */
export function useLoaded<T>(
  key: string | undefined,
  load: (signal: AbortSignal) => Promise<T>,
  everyMs?: number,
): Loaded<T> {
  const [state, setState] = useState<{ key?: string; data?: T; error?: ApiError }>({});
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    if (key === undefined) return undefined;
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const run = async (): Promise<void> => {
      if (!document.hidden) {
        try {
          const data = await latest.current(controller.signal);
          if (!controller.signal.aborted) setState({ key, data });
        } catch (error) {
          if (controller.signal.aborted) return;
          setState((old) => ({
            key,
            data: old.key === key ? old.data : undefined,
            error: error as ApiError,
          }));
        }
      }
      if (everyMs !== undefined && !controller.signal.aborted) {
        timer = setTimeout(() => void run(), everyMs);
      }
    };
    const onVisible = (): void => {
      if (document.hidden || everyMs === undefined) return;
      clearTimeout(timer);
      void run();
    };
    document.addEventListener('visibilitychange', onVisible);
    void run();
    return () => {
      controller.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', onVisible);
    };
  }, [key, everyMs, round]);
  const current = state.key === key;
  return {
    data: current ? state.data : undefined,
    error: current ? state.error : undefined,
    reload: () => setRound((value) => value + 1),
  };
}

/** The time, which advances every `everyMs` as long as `active`. */
export function useNow(active: boolean, everyMs = 1000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!active) return undefined;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [active, everyMs]);
  return now;
}

/** The title of the browser's tab. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Console`;
  }, [title]);
}
