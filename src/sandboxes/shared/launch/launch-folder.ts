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
import type { SpoolExit } from '../../sandbox-driver.js';
import { ifMissing } from '../if-missing.js';
import type { ProcessIdentity } from './process-identity.js';

/** How a launch ended, as its supervisor recorded it. */
export interface ExitRecord {
  reason: Exclude<SpoolExit['reason'], 'lost'>;
  exitCode: number | null;
}

/**
 * Who took the one start of a launch: a supervisor, or somebody who gave the launch up before any supervisor came, so
 * that none may start it later.
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

/** The names of files that change under a follower's eyes. */
export const SPOOL = 'spool';
export const EXIT_RECORD = 'exit';

/**
 * Opens a file that a sandboxed process might have replaced: never through a link, never hanging on a FIFO, and only
 * if it is a plain file. Returns `null` if it is missing or anything else.
 */
export function openPlainFile(path: string): number | null {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch {
    return null;
  }
  if (fstatSync(fd).isFile()) return fd;
  closeSync(fd);
  return null;
}

function readRecord(path: string): unknown {
  const fd = openPlainFile(path);
  if (fd === null) return null;
  try {
    const buffer = Buffer.alloc(MAX_RECORD_BYTES);
    return JSON.parse(buffer.toString('utf8', 0, readSync(fd, buffer, 0, MAX_RECORD_BYTES, 0)));
  } catch {
    return null;
  } finally {
    closeSync(fd);
  }
}

/** The files of one launch. The supervisor writes them, the service reads them; both may come and go. */
export class LaunchFolder {
  constructor(readonly path: string) {}

  get spool(): string {
    return join(this.path, SPOOL);
  }

  /** What the supervisor had to say to the operator. */
  get log(): string {
    return join(this.path, 'log');
  }

  /** Takes the one start of this launch. `false` if somebody has it already. */
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
    const record = readRecord(join(this.path, EXIT_RECORD)) as Partial<ExitRecord> | null;
    if (typeof record?.reason !== 'string' || !EXIT_REASONS.includes(record.reason)) return null;
    const { reason, exitCode } = record;
    if (reason !== 'exited') return { reason, exitCode: null };
    return Number.isInteger(exitCode) ? { reason, exitCode: exitCode ?? null } : null;
  }

  /** Removes what the launch has written, not that it was launched and how it ended. */
  async discardOutput(): Promise<void> {
    const names = [SPOOL, 'log', 'stdout', 'stderr'];
    await Promise.all(names.map((name) => rm(join(this.path, name), { force: true })));
  }

  /** Makes a file appear whole, on disk, and at most once: a link to a finished file, not a create and a write. */
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
      // A file system without hard links: the rename is as whole, only the "at most once" is the folder's own.
      renameSync(draft, join(this.path, name));
      return true;
    } finally {
      try {
        unlinkSync(draft);
      } catch {
        // Renamed above.
      }
    }
  }
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
