import { closeSync, copyFileSync, openSync, statSync, truncateSync, readFileSync } from 'node:fs';
import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { isReady, serverTag, shutDownServer } from './server-processes.js';
import { serverSettings, type Durability } from './server-settings.js';
import { DataDirError } from './data-dir.js';
import { PROGRAM_ENV, type ProgramRunner } from './program-runner.js';

/** A larger log is renamed to `.1` and started again, so that both together stay below twice this size. */
const LOG_LIMIT_BYTES = 8 * 1024 * 1024;
const CHECK_INTERVAL_MS = 60_000;

/** A log file that another process appends to and this process limits in size. */
export class BoundedLog {
  private readonly timer: NodeJS.Timeout;

  constructor(
    readonly path: string,
    private readonly limitBytes = LOG_LIMIT_BYTES,
  ) {
    closeSync(this.open());
    this.trim();
    this.timer = setInterval(() => this.trim(), CHECK_INTERVAL_MS).unref();
  }

  /** @returns a descriptor for appending; after a truncation, the writer continues at the new end */
  open(): number {
    return openSync(this.path, 'a', 0o600);
  }

  /** Rotates the log if it exceeds the limit. */
  trim(): void {
    try {
      if (statSync(this.path).size <= this.limitBytes) return;
      copyFileSync(this.path, `${this.path}.1`);
    } catch {
      // The disk is full or the log was removed. The size limit matters more than the old lines.
    }
    try {
      truncateSync(this.path);
    } catch {
      // The log was removed, so its size needs no limit.
    }
  }

  close(): void {
    clearInterval(this.timer);
  }
}

/** Recovery after a crash reads at most max_wal_size; this timeout is far longer than that takes on a slow disk. */
const READY_WITHIN_MS = 180_000;
const POLL_MS = 5;

export interface ServerOptions {
  cluster: string;
  runner: ProgramRunner;
  log: BoundedLog;
  durability: Durability;
}

/**
 * Starts the server on a cluster that has none, and waits until it accepts connections. If that fails or `signal`
 * aborts, no process is left running.
 *
 * @returns the postmaster
 * @throws DataDirError with PostgreSQL's own reason if it refuses to start
 */
export async function launchServer(
  options: ServerOptions,
  signal?: AbortSignal,
): Promise<ChildProcess> {
  const { cluster, log } = options;
  const logStart = statSync(log.path).size;
  const postmaster = spawnServer(options);
  let spawnError: Error | undefined;
  postmaster.on('error', (error) => (spawnError = error));
  // The server must not keep this process alive.
  postmaster.unref();
  const deadline = Date.now() + READY_WITHIN_MS;
  try {
    for (;;) {
      signal?.throwIfAborted();
      if (spawnError !== undefined) throw spawnError;
      if (postmaster.exitCode !== null || postmaster.signalCode !== null)
        throw new DataDirError(startFailure(cluster, log.path, logStart));
      if (postmaster.pid !== undefined && isReady(cluster, postmaster.pid)) return postmaster;
      if (Date.now() > deadline)
        throw new DataDirError(`PostgreSQL on ${cluster} did not get ready, see ${log.path}`);
      await delay(POLL_MS);
    }
  } catch (error) {
    await shutDownServer(cluster);
    throw error;
  }
}

function spawnServer({ cluster, runner, log, durability }: ServerOptions): ChildProcess {
  const settings = Object.entries(serverSettings(serverTag(cluster), durability));
  const { file, args } = runner.command(cluster, ({ bin, folder }) => [
    join(bin, 'postgres'),
    '-D',
    folder,
    ...settings.flatMap(([name, value]) => ['-c', `${name}=${value}`]),
  ]);
  const output = log.open();
  try {
    return spawn(file, args, {
      cwd: '/',
      env: PROGRAM_ENV,
      stdio: ['ignore', output, output],
      // Its own session, because Ctrl-C in the terminal is meant for the service, which then stops the server.
      detached: true,
    });
  } finally {
    closeSync(output);
  }
}

/** The reason is in the log; the line with which PostgreSQL gave up is the most helpful one. */
function startFailure(cluster: string, logPath: string, from: number): string {
  const text = readFileSync(logPath).subarray(from).toString().trim();
  if (/no space left on device/i.test(text))
    return `DATA_DIR: no space left on device for the database in ${cluster}`;
  const lines = text.split('\n');
  const reason = lines.find((line) => /(FATAL|PANIC):/.test(line)) ?? lines.at(-1) ?? '';
  return `PostgreSQL on ${cluster} did not start: ${reason.replace(/^.*?(FATAL|PANIC): +/, '')} (${logPath})`;
}
