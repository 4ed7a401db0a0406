import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, ftruncateSync, openSync, readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { DataDirError, hasCode } from './data-dir-error.js';
import { asDataDirError, prepareDataDir } from './data-dir.js';

/** Sole use of a data folder by this process. */
export interface DataDirLock {
  /**
   * Says that this service is on its way out: a service that starts now waits for the lock instead
   * of failing.
   */
  stopping(): void;
  /** Gives the folder up. Calling it again does nothing. */
  release(): Promise<void>;
}

/** How long a start waits for a service that is stopping. */
const STOPPING_WAIT_MS = 60_000;
/** A holder writes its pid right after it got the lock: whoever looks too early looks again. */
const UNKNOWN_WAIT_MS = 2_000;
/** macOS opens and locks in one call; Node has no name for the flag. */
const O_EXLOCK = 0x20;

/**
 * Takes `dataDir` for this process, creating the folder when needed.
 *
 * The lock belongs to an open file, so the kernel ends it with the process, however that ends, and
 * no stale lock can be left behind.
 *
 * @throws DataDirError when another running service has it, or the folder cannot be written
 */
export async function lockDataDir(dataDir: string): Promise<DataDirLock> {
  const folder = await prepareDataDir(dataDir);
  const file = join(folder, 'lock');
  const start = Date.now();
  for (;;) {
    const fd = await tryLock(file, folder);
    if (fd !== undefined) return hold(fd);
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

function hold(fd: number): DataDirLock {
  const write = (text: string): void => {
    ftruncateSync(fd, 0);
    writeSync(fd, text, 0);
  };
  let held = true;
  write(`${process.pid}\n`);
  return {
    stopping: () => {
      if (held) write(`${process.pid} stopping\n`);
    },
    release: async () => {
      if (!held) return;
      held = false;
      closeSync(fd);
    },
  };
}

/** @returns the descriptor that holds the lock, or undefined when another process has it */
async function tryLock(file: string, folder: string): Promise<number | undefined> {
  const flags = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW;
  const exclusive = process.platform === 'darwin' ? O_EXLOCK | constants.O_NONBLOCK : 0;
  let fd: number;
  try {
    fd = openSync(file, flags | exclusive, 0o600);
  } catch (error) {
    if (hasCode(error, 'EAGAIN')) return undefined;
    throw asDataDirError(folder, error);
  }
  if (process.platform === 'darwin') return fd;
  try {
    if (await flock(fd)) return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  closeSync(fd);
  return undefined;
}

/**
 * Node has no flock(2). The lock is a property of the open file description, which the helper
 * shares with us through the inherited descriptor: it stays ours after the helper has gone.
 */
async function flock(fd: number): Promise<boolean> {
  const helper = spawn('flock', ['-n', '3'], { stdio: ['ignore', 'ignore', 'ignore', fd] });
  const [code] = (await once(helper, 'exit').catch((error: unknown) => {
    throw new DataDirError(`DATA_DIR cannot be locked: flock (util-linux): ${String(error)}`);
  })) as [number | null];
  return code === 0;
}

/** @returns who says to hold the lock, or undefined when that one is gone or has yet to say it */
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
