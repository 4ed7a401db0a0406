import { createHash } from 'node:crypto';
import { lstatSync, readlinkSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hasCode } from '../../common/missing-file.js';
import { DataDirError } from './data-dir.js';

/** The folder of the server's socket, relative to its data folder, which only its user can enter. */
export const SOCKET_PORT = 5432;
export const SOCKET_NAME = `.s.PGSQL.${SOCKET_PORT}`;

/** `full` survives a power cut; `none` is for tests, whose data is disposable. */
export type Durability = 'full' | 'none';

/**
 * The server's settings by name. They are passed on the command line, where they take precedence over those in the data
 * folder, so that every start uses the settings of this release.
 */
export function serverSettings(tag: string, durability: Durability): Record<string, string> {
  const sync = durability === 'full' ? 'on' : 'off';
  return {
    cluster_name: tag,
    listen_addresses: '',
    unix_socket_directories: '.',
    port: String(SOCKET_PORT),
    password_encryption: 'scram-sha-256',
    max_connections: '200',
    shared_buffers: '128MB',
    max_wal_size: '512MB',
    min_wal_size: '80MB',
    fsync: sync,
    synchronous_commit: sync,
    full_page_writes: sync,
    huge_pages: 'off',
    // A container's /dev/shm is often only 64 MB; files in the data folder have no such limit.
    dynamic_shared_memory_type: 'mmap',
    max_parallel_workers_per_gather: '0',
    max_logical_replication_workers: '0',
    timezone: 'UTC',
    log_timezone: 'UTC',
    // The service reports failed statements itself; here they would write clients' data to a file. The log only keeps
    // messages about the server itself.
    log_min_messages: 'log',
    log_min_error_statement: 'panic',
    log_error_verbosity: 'terse',
    log_checkpoints: 'off',
    log_destination: 'stderr',
    logging_collector: 'off',
  };
}

/** The name of the service's database. */
export const DATABASE = 'agent_sessions';
/** The longest path of a Unix socket: 108 bytes on Linux and 104 on macOS, less the closing zero. */
const SOCKET_PATH_BYTES = process.platform === 'darwin' ? 103 : 107;

/**
 * The connection URL of a cluster's server, for node-postgres, TypeORM and libpq (psql).
 *
 * The server only listens on a socket in its own data folder, which no other user may enter. All clients ignore the
 * host in front of the path; it is only there so that `new URL` can parse the URL.
 */
export function serverUrl(cluster: string, password: string, database = DATABASE): string {
  const url = new URL(`postgres://postgres@localhost:${SOCKET_PORT}/${database}`);
  url.password = password;
  return `${url.href}?host=${encodeURIComponent(socketFolder(cluster))}`;
}

/**
 * Removes the link that {@link serverUrl} may have made outside the cluster. Call it while the server is not running.
 */
export function forgetServerUrl(cluster: string): void {
  if (!fits(cluster)) rmSync(linkTo(cluster), { force: true });
}

/** The cluster's path if it fits into a socket address, otherwise the path of a short link to it. */
function socketFolder(cluster: string): string {
  if (fits(cluster)) return cluster;
  const link = linkTo(cluster);
  if (!fits(link)) throw new DataDirError(`the path ${cluster} is too long for a Unix socket`);
  ensureLink(link, cluster);
  return link;
}

function fits(folder: string): boolean {
  return Buffer.byteLength(join(folder, SOCKET_NAME)) <= SOCKET_PATH_BYTES;
}

function linkTo(cluster: string): string {
  const name = createHash('sha256').update(cluster).digest('hex').slice(0, 16);
  return join(tmpdir(), `sessions-${process.geteuid?.()}-${name}`);
}

function ensureLink(link: string, target: string): void {
  const problem = `the path ${target} is too long for a Unix socket, and ${link} is taken`;
  try {
    if (lstatSync(link).uid !== process.geteuid?.()) throw new DataDirError(problem);
    if (readlinkSync(link) === target) return;
    rmSync(link);
  } catch (error) {
    if (!hasCode(error, 'ENOENT', 'EINVAL')) throw error;
    if (hasCode(error, 'EINVAL')) throw new DataDirError(problem);
  }
  symlinkSync(target, link);
}
