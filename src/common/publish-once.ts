import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readdir, realpath, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { withFileLock } from './files.js';

export interface PublishOptions {
  /** The folder that contains the published folders. Created if it is missing. */
  dir: string;
  /** Identifies the folder's content: a folder that exists under this name is used as it is. */
  name: string;
  signal: AbortSignal;
  onProgress?: (message: string) => void;
  /** Fills an empty folder. Its signal says that no one waits any more. */
  build: (context: BuildContext) => Promise<void>;
}

export interface BuildContext {
  draft: string;
  signal: AbortSignal;
  onProgress: (message: string) => void;
}

interface Running {
  done: Promise<void>;
  waiting: Set<(message: string) => void>;
  abandon: AbortController;
}

const BUILDING = '.building';

/** Builds in this process, by path. */
const running = new Map<string, Running>();

/**
 * Makes a folder once: builds it under another name, syncs it, and renames it when it is complete. Concurrent callers,
 * in this process and in others, share one build. Remains of a crashed build are removed before the next one. A build
 * is abandoned when the last caller that waits for it has given up.
 * @returns the absolute path of the complete folder
 * @throws what `build` throws; the signal's reason if aborted
 */
export async function publishOnce(options: PublishOptions): Promise<string> {
  const { signal, name, build, onProgress } = options;
  signal.throwIfAborted();
  await mkdir(options.dir, { recursive: true });
  // Resolves links, so that the path is the same wherever the folder is mounted.
  const dir = await realpath(options.dir);
  const path = join(dir, name);
  if (existsSync(path)) return path;

  let shared = running.get(path);
  if (shared === undefined || shared.abandon.signal.aborted) {
    shared = start({ dir, path, build });
    running.set(path, shared);
  }
  // Another process may be building it, whose progress is unknown here.
  onProgress?.('waiting for it to be made');
  const listener = (message: string): void => onProgress?.(message);
  shared.waiting.add(listener);
  try {
    await orAborted(shared.done, signal);
  } finally {
    shared.waiting.delete(listener);
    if (shared.waiting.size === 0) shared.abandon.abort();
  }
  return path;
}

interface Target extends Pick<PublishOptions, 'dir' | 'build'> {
  path: string;
}

function start(target: Target): Running {
  const waiting: Running['waiting'] = new Set();
  const abandon = new AbortController();
  const onProgress = (message: string): void => {
    for (const listener of waiting) listener(message);
  };
  const done = publish(target, abandon.signal, onProgress);
  const shared = { done, waiting, abandon };
  const forget = (): void => {
    if (running.get(target.path) === shared) running.delete(target.path);
  };
  // Handles the rejection too, because there may be no caller left.
  done.then(forget, forget);
  return shared;
}

async function publish(
  { dir, path, build }: Target,
  signal: AbortSignal,
  onProgress: (message: string) => void,
): Promise<void> {
  await withFileLock(join(dir, '.lock'), signal, async () => {
    if (existsSync(path)) return;
    for (const left of await readdir(dir)) {
      if (left.endsWith(BUILDING)) await rm(join(dir, left), { recursive: true, force: true });
    }
    const draft = `${path}${BUILDING}`;
    await mkdir(draft, { mode: 0o755 });
    try {
      await build({ draft, signal, onProgress });
      signal.throwIfAborted();
      // Syncs before the rename, so that after a power cut the folder is complete or missing.
      await promisify(execFile)('sync', ['-f', draft]);
      await rename(draft, path);
    } catch (error) {
      await rm(draft, { recursive: true, force: true });
      throw error;
    }
  });
}

async function orAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  let onAbort: () => void = () => undefined;
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason as Error);
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
  await Promise.race([work, aborted]).finally(() => signal.removeEventListener('abort', onAbort));
}
