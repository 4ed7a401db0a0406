import { createHash } from 'node:crypto';
import { lstatSync, readlinkSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DataDirError, hasCode } from './data-dir-error.js';
import { SOCKET_NAME, SOCKET_PORT } from './settings.js';

/** The database that the service uses. */
export const DATABASE = 'agent_sessions';
/** The address of a Unix socket holds this many bytes on Linux with the closing zero, 104 on macOS. */
const SOCKET_PATH_BYTES = process.platform === 'darwin' ? 103 : 107;

/**
 * The connection URL of a cluster's server, good for node-postgres, TypeORM and libpq (psql).
 *
 * The server listens only on a socket in its own data folder, which nobody else may enter; the
 * host in front of the path is ignored by all of these and keeps the URL one that `new URL` parses.
 */
export function serverUrl(cluster: string, password: string, database = DATABASE): string {
  const url = new URL(`postgres://postgres@localhost:${SOCKET_PORT}/${database}`);
  url.password = password;
  return `${url.href}?host=${encodeURIComponent(socketFolder(cluster))}`;
}

/** Removes what {@link serverUrl} may have made outside the cluster; the server is not running. */
export function forgetServerUrl(cluster: string): void {
  if (!fits(cluster)) rmSync(linkTo(cluster), { force: true });
}

/** A path to the cluster that is short enough for a socket's address: its own, or a link to it. */
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
