import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  linkSync,
  openSync,
  readSync,
  renameSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { SpoolExit } from './calls.js';
import { ifMissing } from '../common/missing-file.js';
import type { ProcessIdentity } from './processes.js';

/** How a launch ended, as its supervisor recorded it. */
export interface ExitRecord {
  reason: Exclude<SpoolExit['reason'], 'lost'>;
  exitCode: number | null;
}

/**
 * The process that claimed the only start of a launch: a supervisor, or a process that gave up the launch before a
 * supervisor started, so that none may start it later.
 */
export type StartRecord = { supervisor: ProcessIdentity } | { abandoned: true };

const EXIT_REASONS: readonly string[] = [
  'exited',
  'killed',
  'deadline',
  'output_limit',
  'disk_limit',
  'memory_limit',
] satisfies ExitRecord['reason'][];

const MAX_RECORD_BYTES = 4096;

/** The names of files that followers watch for changes. */
export const SPOOL = 'spool';
export const EXIT_RECORD = 'exit';

/**
 * Errors of opening a file that mean that there is no plain file: it is missing, a link, a folder or a device without a
 * driver.
 */
const NO_PLAIN_FILE = new Set(['ENOENT', 'ENOTDIR', 'ELOOP', 'EISDIR', 'ENXIO', 'ENODEV']);

/**
 * Opens a file that a sandboxed process might have replaced. It never follows a link or hangs on a FIFO, and only opens
 * plain files. Returns `null` if the file is missing or anything else.
 * @throws the system's error if that is unknown, such as EMFILE
 */
export function openPlainFile(path: string): number | null {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    if (NO_PLAIN_FILE.has((error as NodeJS.ErrnoException).code ?? '')) return null;
    throw error;
  }
  try {
    if (fstatSync(fd).isFile()) return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  closeSync(fd);
  return null;
}

/** @returns `null` if there is no valid record. @throws the system's error as above */
function readRecord(path: string): unknown {
  const fd = openPlainFile(path);
  if (fd === null) return null;
  const buffer = Buffer.alloc(MAX_RECORD_BYTES);
  let text: string;
  try {
    text = buffer.toString('utf8', 0, readSync(fd, buffer, 0, MAX_RECORD_BYTES, 0));
  } finally {
    closeSync(fd);
  }
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/**
 * The files of one launch. The supervisor writes them and the service reads them; either may restart at any time. A
 * method throws the system's error if a record may exist but cannot be read, because that does not mean that the launch
 * is dead.
 */
export class LaunchFolder {
  constructor(readonly path: string) {}

  get spool(): string {
    return join(this.path, SPOOL);
  }

  /** The supervisor's messages for the operator. */
  get log(): string {
    return join(this.path, 'log');
  }

  /** Claims the only start of this launch. `false` if another process has claimed it already. */
  claimStart(record: StartRecord): boolean {
    return this.publish('started', record);
  }

  /** Records how the launch ended. The first record stands. */
  recordExit(record: ExitRecord): boolean {
    return this.publish(EXIT_RECORD, record);
  }

  readStart(): StartRecord | null {
    const record = readRecord(join(this.path, 'started')) as Partial<{
      supervisor: ProcessIdentity;
      abandoned: true;
    }> | null;
    if (
      record?.supervisor &&
      Number.isSafeInteger(record.supervisor.pid) &&
      record.supervisor.pid > 1
    ) {
      return { supervisor: record.supervisor };
    }
    return record?.abandoned === true ? { abandoned: true } : null;
  }

  readExit(): ExitRecord | null {
    return parseExit(readRecord(join(this.path, EXIT_RECORD)));
  }

  /** Removes the launch's output, but not the records of its start and its exit. */
  async discardOutput(): Promise<void> {
    const names = [SPOOL, 'log', 'stdout', 'stderr'];
    await Promise.all(names.map((name) => rm(join(this.path, name), { force: true })));
  }

  /**
   * Creates a file atomically, durably and at most once: by a link to a finished file, not by creating and then writing
   * it.
   */
  private publish(name: string, record: unknown): boolean {
    const draft = join(this.path, `.${name}-${randomBytes(6).toString('hex')}`);
    const fd = openSync(draft, 'wx', 0o600);
    try {
      writeSync(fd, JSON.stringify(record));
      if (name === EXIT_RECORD) fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    try {
      linkSync(draft, join(this.path, name));
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
      // The file system has no hard links. The rename is atomic, too, and the folder itself ensures the "at most once".
      renameSync(draft, join(this.path, name));
      return true;
    } finally {
      try {
        unlinkSync(draft);
      } catch {
        // It was renamed above.
      }
    }
  }
}

/** @returns `null` if the value is not an exit record */
export function parseExit(value: unknown): ExitRecord | null {
  const record = value as Partial<ExitRecord> | null;
  if (typeof record?.reason !== 'string' || !EXIT_REASONS.includes(record.reason)) return null;
  const { reason, exitCode } = record;
  if (reason !== 'exited') return { reason, exitCode: null };
  return Number.isInteger(exitCode) ? { reason, exitCode: exitCode ?? null } : null;
}

/** The launches of one sandbox, each in a folder that is named for it. */
export class LaunchFolders {
  constructor(readonly path: string) {}

  launch(launchId: string): LaunchFolder {
    return new LaunchFolder(join(this.path, launchId));
  }

  async launchIds(): Promise<string[]> {
    return readdir(this.path).catch(ifMissing<string[]>([]));
  }
}
