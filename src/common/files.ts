import { randomUUID } from 'node:crypto';
import { link, mkdir, open, readdir, readFile, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, openSync } from 'node:fs';
import { hasCode, ifMissing } from './missing-file.js';

/**
 * Reads a small file that all processes with this folder share, and creates it on first use. Processes that create it
 * at the same time end up with the same file. A process that is killed meanwhile leaves no partial file under its name.
 * @param make returns the text of a new file. @param mode permission bits of a new file.
 */
export async function readOrCreate(
  path: string,
  make: () => string,
  mode = 0o644,
): Promise<string> {
  const there = await readFile(path, 'utf8').catch(ifMissing(undefined));
  if (there !== undefined) {
    await sweepDrafts(path);
    return there;
  }
  await mkdir(dirname(path), { recursive: true });
  const draft = `${path}.${randomUUID()}.new`;
  const file = await open(draft, 'w', mode);
  try {
    await file.writeFile(make());
    await file.sync();
  } finally {
    await file.close();
  }
  try {
    // Unlike rename, link does not replace a file that another process created meanwhile.
    await link(draft, path);
  } catch (error) {
    // Another process has created the file, or has swept this draft.
    if (!hasCode(error, 'EEXIST', 'ENOENT')) throw error;
  } finally {
    await rm(draft, { force: true });
  }
  return readFile(path, 'utf8');
}

/** Removes drafts of processes that were killed while they created the file. */
async function sweepDrafts(path: string): Promise<void> {
  const [folder, start] = [dirname(path), `${basename(path)}.`];
  for (const name of await readdir(folder)) {
    if (name.startsWith(start) && name.endsWith('.new'))
      await rm(join(folder, name), { force: true });
  }
}

/** A `shared` lock allows other shared locks; an `exclusive` one allows no other lock. */
export type LockMode = 'shared' | 'exclusive';

/** macOS opens and locks in one call; Node has no names for the flags. */
const MACOS_FLAGS: Record<LockMode, number> = { shared: 0x10, exclusive: 0x20 };

/**
 * Locks a file, and creates it if it is missing. The lock belongs to the open file, so the kernel releases it when this
 * process ends, even after a crash. Closing the descriptor releases it.
 *
 * @returns the descriptor that holds the lock, or undefined when another process has it
 * @throws the system's error when the file cannot be opened; an Error when the program `flock` does not start
 */
export async function tryFileLock(path: string, mode: LockMode): Promise<number | undefined> {
  const isMac = process.platform === 'darwin';
  const flags = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW;
  let fd: number;
  try {
    fd = openSync(path, isMac ? flags | MACOS_FLAGS[mode] | constants.O_NONBLOCK : flags, 0o600);
  } catch (error) {
    if (isMac && hasCode(error, 'EAGAIN')) return undefined;
    throw error;
  }
  if (isMac) return fd;
  try {
    if (await flock(fd, ['--nonblock', `--${mode}`])) return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  closeSync(fd);
  return undefined;
}

/**
 * Runs `work` while holding an exclusive lock on a file, across processes. Waits until the lock is free.
 * @throws the signal's reason if it is aborted while waiting for the lock
 */
export async function withFileLock<T>(
  path: string,
  signal: AbortSignal,
  work: () => Promise<T>,
): Promise<T> {
  signal.throwIfAborted();
  const fd = openSync(path, constants.O_RDONLY | constants.O_CREAT, 0o666);
  try {
    const locked = await flock(fd, ['--exclusive'], signal);
    signal.throwIfAborted();
    if (!locked) throw new Error(`cannot lock ${path}`);
    return await work();
  } finally {
    closeSync(fd);
  }
}

/**
 * Node has no flock(2). The lock belongs to the open file description, which the helper shares with this process
 * through the inherited descriptor, so this process keeps the lock after the helper has exited.
 */
async function flock(fd: number, options: string[], signal?: AbortSignal): Promise<boolean> {
  const helper = spawn('flock', [...options, '3'], { stdio: ['ignore', 'ignore', 'ignore', fd] });
  const stop = (): void => void helper.kill();
  signal?.addEventListener('abort', stop, { once: true });
  try {
    const [code] = (await once(helper, 'exit').catch((error: unknown) => {
      throw new Error(`flock (util-linux) does not start: ${String(error)}`, { cause: error });
    })) as [number | null];
    return code === 0;
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}
