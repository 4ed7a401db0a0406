import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chown,
  lchown,
  mkdir,
  mkdtemp,
  open,
  readFile,
  readdir,
  rename,
  rm,
  rmdir,
  stat,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { hasCode } from '../../common/missing-file.js';
import { DataDirError } from './data-dir.js';
import { PROGRAM_ENV, type ProgramRunner } from './program-runner.js';
import type { Durability } from './server-settings.js';

const run = promisify(execFile);

/** The major version of PostgreSQL in the npm package. */
const MAJOR_VERSION = '18';
/** The password is stored in the cluster, so that the data and its password are created, moved and lost together. */
const PASSWORD_FILE = 'service-password';
const UNFINISHED = 'postgres.new-';

/** @returns the folder of the database cluster below a data folder */
export const clusterPath = (dataDir: string): string => join(dataDir, 'postgres');

/** @returns the superuser's password, or undefined if there is no cluster yet */
export async function readPassword(cluster: string): Promise<string | undefined> {
  try {
    return await readFile(join(cluster, PASSWORD_FILE), 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    if (hasCode(error, 'EACCES'))
      throw new DataDirError(
        `${cluster} belongs to another user: run this as the user who runs the service, or as root`,
      );
    throw error;
  }
}

/**
 * Makes sure that there is a cluster of our PostgreSQL version which belongs to the user who runs the server.
 *
 * A new cluster is built under another name and renamed when it is complete. A crash in between leaves a folder that
 * the next start removes, never half a cluster.
 *
 * @returns the superuser's password
 * @throws DataDirError if the folder contains something else or a cluster of another version
 */
export async function ensureCluster(
  dataDir: string,
  runner: ProgramRunner,
  durability: Durability,
  signal?: AbortSignal,
): Promise<string> {
  const cluster = clusterPath(dataDir);
  await removeUnfinished(dataDir);
  if (!(await isCluster(cluster))) await createCluster(dataDir, runner, durability, signal);
  const { uid } = await stat(cluster);
  if (uid !== runner.owner.uid) await giveTo(cluster, runner.owner);
  const password = await readPassword(cluster);
  if (password === undefined)
    throw new DataDirError(`${cluster} was not made by this service (no ${PASSWORD_FILE} in it)`);
  return password;
}

async function isCluster(cluster: string): Promise<boolean> {
  let version: string;
  try {
    version = (await readFile(join(cluster, 'PG_VERSION'), 'utf8')).trim();
  } catch (error) {
    if (hasCode(error, 'EACCES'))
      throw new DataDirError(`${cluster} belongs to another user: start the service as that user`);
    if (hasCode(error, 'ENOTDIR')) throw new DataDirError(`${cluster} is not a folder`);
    if (!hasCode(error, 'ENOENT')) throw error;
    await rmdir(cluster).catch((reason: unknown) => {
      if (hasCode(reason, 'ENOENT')) return;
      throw new DataDirError(`${cluster} holds something else than a PostgreSQL cluster`);
    });
    return false;
  }
  if (version === MAJOR_VERSION) return true;
  throw new DataDirError(
    `${cluster} was made by PostgreSQL ${version}, this release runs ${MAJOR_VERSION}: move the ` +
      'data over with pg_dump or pg_upgrade, or set another DATA_DIR',
  );
}

async function createCluster(
  dataDir: string,
  runner: ProgramRunner,
  durability: Durability,
  signal?: AbortSignal,
): Promise<void> {
  const { uid, gid } = runner.initUser;
  const workshop = await mkdtemp(join(dataDir, UNFINISHED));
  try {
    const data = join(workshop, 'data');
    const password = join(workshop, 'password');
    await mkdir(data, { mode: 0o700 });
    await writeFile(password, randomBytes(24).toString('base64url'), { mode: 0o600, flush: true });
    for (const path of [workshop, data, password]) await chown(path, uid, gid);
    const { file, args } = runner.command(
      workshop,
      ({ bin, folder }) => [
        join(bin, 'initdb'),
        `--pgdata=${folder}/data`,
        `--pwfile=${folder}/password`,
        '--username=postgres',
        '--auth=scram-sha-256',
        '--encoding=UTF8',
        // The same collation on every machine, even after an upgrade of the operating system.
        '--locale=C',
        '--locale-provider=builtin',
        '--builtin-locale=C.UTF-8',
        // Otherwise a crash during initdb leaves shared memory behind that nobody cleans up.
        '--set=dynamic_shared_memory_type=mmap',
        '--no-instructions',
        ...(durability === 'full' ? [] : ['--no-sync']),
      ],
      runner.initUser,
    );
    await run(file, args, { env: PROGRAM_ENV, cwd: '/', signal });
    await rename(password, join(data, PASSWORD_FILE));
    if (uid !== runner.owner.uid) await giveTo(data, runner.owner);
    await syncFolder(data);
    await rename(data, clusterPath(dataDir));
    await syncFolder(dataDir);
  } catch (error) {
    throw initError(dataDir, error);
  } finally {
    await rm(workshop, { recursive: true, force: true });
  }
}

function initError(dataDir: string, error: unknown): unknown {
  const text =
    typeof error === 'object' && error !== null && 'stderr' in error
      ? String(error.stderr).trim()
      : '';
  if (/no space left on device/i.test(text) || hasCode(error, 'ENOSPC'))
    return new DataDirError(`DATA_DIR ${dataDir}: no space left on device for the database`);
  if (/shared librar/.test(text))
    return new DataDirError(
      `PostgreSQL does not run here (${firstLine(text)}): install again with npm ci`,
    );
  if (/could not look up effective user/.test(text))
    return new DataDirError(
      `PostgreSQL needs a user with a name, and uid ${process.geteuid?.()} has no entry in ` +
        '/etc/passwd: start the service as another user, or set DATABASE_URL',
    );
  if (text === '') return error;
  return new DataDirError(`PostgreSQL could not create its data: ${firstLine(text)}`);
}

const firstLine = (text: string): string => text.split('\n', 1)[0] ?? '';

/** Removes the folder of a start that was killed while it created the cluster. */
async function removeUnfinished(dataDir: string): Promise<void> {
  for (const name of await readdir(dataDir))
    if (name.startsWith(UNFINISHED))
      await rm(join(dataDir, name), { recursive: true, force: true });
}

/** Changes the owner of a folder and its contents; of symbolic links themselves, not of their targets. */
async function giveTo(folder: string, owner: { uid: number; gid: number }): Promise<void> {
  const entries = await readdir(folder, { recursive: true });
  for (const entry of entries) await lchown(join(folder, entry), owner.uid, owner.gid);
  await lchown(folder, owner.uid, owner.gid);
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
