import { constants, closeSync, ftruncateSync, readFileSync, writeSync } from 'node:fs';
import { access, mkdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type LockMode, tryFileLock } from '../../common/files.js';
import { hasCode } from '../../common/missing-file.js';

/** A `DATA_DIR` that the service cannot use as it is; the message is one line for the operator. */
export class DataDirError extends Error {
  override readonly name = 'DataDirError';
}

/** Whether this process is root, which owns the folder but cannot run PostgreSQL itself. */
export const runsAsRoot = (): boolean => process.geteuid?.() === 0;

/**
 * Makes sure that `dataDir` is a folder that this process may write to. Creates it if needed.
 *
 * @returns its absolute path without symbolic links
 * @throws DataDirError if it cannot be created, is not a folder or is not writable
 */
export async function prepareDataDir(dataDir: string): Promise<string> {
  try {
    // PostgreSQL runs under another uid if the service is root, and that uid must be able to enter this folder.
    await mkdir(dataDir, { recursive: true, mode: runsAsRoot() ? 0o711 : 0o700 });
    await access(dataDir, constants.R_OK | constants.W_OK | constants.X_OK);
    return await realpath(dataDir);
  } catch (error) {
    throw asDataDirError(dataDir, error);
  }
}

/** Converts a system error under `dataDir` into a one-line message; returns other errors unchanged. */
export function asDataDirError(dataDir: string, error: unknown): unknown {
  if (hasCode(error, 'EACCES', 'EPERM', 'EROFS'))
    return new DataDirError(`DATA_DIR ${dataDir} is not writable by uid ${process.geteuid?.()}`);
  if (hasCode(error, 'EEXIST', 'ENOTDIR'))
    return new DataDirError(`DATA_DIR ${dataDir} is not a folder`);
  if (hasCode(error, 'ENOSPC', 'EDQUOT'))
    return new DataDirError(`DATA_DIR ${dataDir}: no space left on device`);
  return error;
}

/** A data folder that this process has locked. */
export interface DataDirLock {
  /** Records that this service is stopping, so that a service that starts now waits for the lock instead of failing. */
  stopping(): void;
  /** Releases the lock. Calling it again does nothing. */
  release(): Promise<void>;
}

/** How long a starting service waits for one that is stopping. */
const STOPPING_WAIT_MS = 60_000;
/** The holder writes its pid right after it takes the lock. If the pid is missing, readers retry for this long. */
const UNKNOWN_WAIT_MS = 2_000;

/**
 * Locks `dataDir` for this process, creating the folder if needed: `exclusive` for a process that runs its own
 * PostgreSQL there, `shared` for processes that share a configured database.
 *
 * The kernel releases the lock when the process ends for any reason.
 *
 * @throws DataDirError if a running service holds the lock, or the folder is not writable
 */
export async function lockDataDir(
  dataDir: string,
  mode: LockMode = 'exclusive',
): Promise<DataDirLock> {
  const folder = await prepareDataDir(dataDir);
  const file = join(folder, 'lock');
  const start = Date.now();
  for (;;) {
    const fd = await tryLock(file, folder, mode);
    if (fd !== undefined) return hold(fd, file);
    const holder = readHolder(file);
    const patience =
      holder === undefined ? UNKNOWN_WAIT_MS : holder.stopping ? STOPPING_WAIT_MS : 0;
    if (Date.now() - start > patience || patience === 0) {
      const pid = holder === undefined ? '' : ` (pid ${holder.pid})`;
      throw new DataDirError(`DATA_DIR ${folder} is in use by another running service${pid}`);
    }
    await delay(20);
  }
}

function hold(fd: number, file: string): DataDirLock {
  const write = (text: string): void => {
    ftruncateSync(fd, 0);
    writeSync(fd, text, 0);
  };
  let held = true;
  write(`${process.pid}\n`);
  return {
    stopping: () => {
      // Several processes can share the folder. The file then has the process id of the newest.
      if (held && readHolder(file)?.pid === process.pid) write(`${process.pid} stopping\n`);
    },
    release: async () => {
      if (!held) return;
      held = false;
      closeSync(fd);
    },
  };
}

/** @returns the descriptor that holds the lock, or undefined when another process has it */
async function tryLock(file: string, folder: string, mode: LockMode): Promise<number | undefined> {
  try {
    return await tryFileLock(file, mode);
  } catch (error) {
    if (error instanceof Error && 'code' in error) throw asDataDirError(folder, error);
    throw new DataDirError(`DATA_DIR cannot be locked: ${String(error)}`);
  }
}

/** @returns the process that the lock file names, or undefined if it is gone or has not written its pid yet */
function readHolder(file: string): { pid: number; stopping: boolean } | undefined {
  const [, pid, stopping] = /^(\d+)( stopping)?\n/.exec(readFileSync(file, 'utf8')) ?? [];
  if (pid === undefined || !isAlive(Number(pid))) return undefined;
  return { pid: Number(pid), stopping: stopping !== undefined };
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return hasCode(error, 'EPERM');
  }
}
