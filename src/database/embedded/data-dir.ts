import { constants } from 'node:fs';
import { access, mkdir, realpath } from 'node:fs/promises';
import { DataDirError, hasCode } from './data-dir-error.js';

/** Whether this process is root, which owns the folder but may not run PostgreSQL itself. */
export const runsAsRoot = (): boolean => process.geteuid?.() === 0;

/**
 * Makes sure that `dataDir` is a folder that this process may write to, creating it when needed.
 *
 * @returns its absolute path without symbolic links
 * @throws DataDirError when it cannot be made, is not a folder or is not writable
 */
export async function prepareDataDir(dataDir: string): Promise<string> {
  try {
    // Root's database runs under another uid, which has to pass through here to its own folder.
    await mkdir(dataDir, { recursive: true, mode: runsAsRoot() ? 0o711 : 0o700 });
    await access(dataDir, constants.R_OK | constants.W_OK | constants.X_OK);
    return await realpath(dataDir);
  } catch (error) {
    throw asDataDirError(dataDir, error);
  }
}

/** Puts a system error met under `dataDir` into one line; what is not a system error stays as it is. */
export function asDataDirError(dataDir: string, error: unknown): unknown {
  if (hasCode(error, 'EACCES', 'EPERM', 'EROFS'))
    return new DataDirError(`DATA_DIR ${dataDir} is not writable by uid ${process.geteuid?.()}`);
  if (hasCode(error, 'EEXIST', 'ENOTDIR'))
    return new DataDirError(`DATA_DIR ${dataDir} is not a folder`);
  if (hasCode(error, 'ENOSPC', 'EDQUOT'))
    return new DataDirError(`DATA_DIR ${dataDir}: no space left on device`);
  return error;
}
