import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { BoundedLog } from './bounded-log.js';
import { DataDirError } from './data-dir-error.js';
import { PROGRAM_ENV, type ProgramRunner } from './program-runner.js';
import { isReady, serverTag, shutDownServer } from './server-processes.js';
import { serverSettings, type Durability } from './settings.js';

/** Recovery after a crash reads at most max_wal_size; this is far beyond it, even on a slow disk. */
const READY_WITHIN_MS = 180_000;
const POLL_MS = 5;

export interface ServerOptions {
  cluster: string;
  runner: ProgramRunner;
  log: BoundedLog;
  durability: Durability;
}

/**
 * Starts the server on a cluster that nobody serves and waits until it accepts connections. If it
 * does not, or `signal` says stop, nothing is left running.
 *
 * @returns the postmaster
 * @throws DataDirError with PostgreSQL's own reason when it refuses to start
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
  // The service's other work decides how long the process lives, not its database.
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
      // A session of its own: Ctrl-C in the terminal is for the service, which then stops this.
      detached: true,
    });
  } finally {
    closeSync(output);
  }
}

/** The reason stands in the log; the line that PostgreSQL gave up with says it best. */
function startFailure(cluster: string, logPath: string, from: number): string {
  const text = readFileSync(logPath).subarray(from).toString().trim();
  if (/no space left on device/i.test(text))
    return `DATA_DIR: no space left on device for the database in ${cluster}`;
  const lines = text.split('\n');
  const reason = lines.find((line) => /(FATAL|PANIC):/.test(line)) ?? lines.at(-1) ?? '';
  return `PostgreSQL on ${cluster} did not start: ${reason.replace(/^.*?(FATAL|PANIC): +/, '')} (${logPath})`;
}
