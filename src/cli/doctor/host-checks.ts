import { constants } from 'node:fs';
import { access, mkdtemp, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { AppConfig } from '../../config/app-config.js';
import { findShortOfDisk } from '../../sandboxes/sandbox-room.js';
import { diagnose, type Diagnosis, fail, type Finding, ok, warn } from './finding.js';
import { loadKeyRing } from '../../secrets/secrets.module.js';
import { requireRegistered } from '../../secrets/registered-keys.js';
import type { OperatorDatabase } from '../operator-database.js';

const GIB = 2 ** 30;
const LEAST_BYTES = GIB;
const LEAST_INODES = 10_000;

/** Checks that the data folder has enough space and that this user may write to it. */
export async function checkDisk(config: AppConfig): Promise<Finding[]> {
  return [
    await diagnose('permissions', () => checkPermissions(config.dataDir)),
    await diagnose('disk', () => checkRoom(config)),
  ];
}

async function checkPermissions(dataDir: string): Promise<Diagnosis> {
  const folder = await stat(dataDir).catch(() => undefined);
  if (!folder) {
    const parent = dirname(dataDir);
    await access(parent, constants.W_OK);
    return warn(
      `DATA_DIR, ${dataDir}, does not exist yet`,
      'start the service, or set DATA_DIR to its folder',
    );
  }
  if (!folder.isDirectory())
    return fail(`DATA_DIR, ${dataDir}, is not a folder`, 'set it to a folder');
  const user = process.geteuid?.() ?? folder.uid;
  if (folder.uid !== user) {
    return warn(
      `DATA_DIR, ${dataDir}, belongs to user ${folder.uid}, but this command runs as ${user}`,
      'run this command as the user of the service, so that it has the same permissions',
    );
  }
  const probe = await mkdtemp(join(dataDir, '.doctor-'));
  try {
    await writeFile(join(probe, 'probe'), 'x');
  } finally {
    await rm(probe, { recursive: true, force: true });
  }
  if ((folder.mode & 0o022) !== 0) {
    return warn(`Other users may write to DATA_DIR, ${dataDir}`, `run chmod go-w ${dataDir}`);
  }
  return ok(`DATA_DIR, ${dataDir}, belongs to this user and is writable`);
}

async function checkRoom(config: AppConfig): Promise<Diagnosis> {
  const diagnoses: Diagnosis[] = [];
  for (const folder of new Set([config.dataDir, config.cacheDir])) {
    diagnoses.push(await roomIn(folder, config));
  }
  const [first = ok('')] = diagnoses.toSorted((a, b) => gravity(b) - gravity(a));
  return first;
}

async function roomIn(folder: string, config: AppConfig): Promise<Diagnosis> {
  const sandboxBytes = config.sandbox.diskBytes;
  const there = await nearest(folder);
  const { bavail, bsize, ffree, files } = await statfs(there);
  const free = bavail * bsize;
  const said = `${(free / GIB).toFixed(1)} GiB are free below ${folder}`;
  const advice =
    'run `sandboxes reap --idle 1h` to free space; add disk space or lower SANDBOX_DISK to prevent it';
  // Some file systems have no fixed number of inodes and report 0.
  if (files > 0 && ffree < LEAST_INODES) {
    return fail(`${said}, but only ${ffree} inodes`, advice);
  }
  const short = await findShortOfDisk([there], config.diskWatermarkBytes);
  if (short !== undefined) {
    const watermark = `${Math.ceil(short.watermarkBytes / 2 ** 20)} MiB`;
    return fail(`${said}, below DISK_WATERMARK (${watermark}): new sessions are rejected`, advice);
  }
  if (free < LEAST_BYTES) return fail(said, advice);
  return free < sandboxBytes * 2
    ? warn(`${said}, and one sandbox may use ${(sandboxBytes / GIB).toFixed(1)} GiB`, advice)
    : ok(said);
}

/** The folder if it exists, else its closest existing parent. */
async function nearest(folder: string): Promise<string> {
  const there = await stat(folder).then(
    () => true,
    () => false,
  );
  return there || folder === dirname(folder) ? folder : nearest(dirname(folder));
}

function gravity({ verdict }: Diagnosis): number {
  return ['ok', 'skip', 'warn', 'fail'].indexOf(verdict);
}

const REGISTERED = { name: '', text: 'SELECT count(*)::int AS keys FROM encryption_keys' };

/** Checks that the key ring decrypts the secrets in the database. Does not create a key if there is none. */
export async function checkKeys({ sql, config }: OperatorDatabase): Promise<Diagnosis> {
  const path = join(config.dataDir, 'encryption-keys');
  const mode = await stat(path).then(
    (found) => found.mode,
    () => undefined,
  );
  const fromFile = config.encryptionKeys === undefined;
  if (fromFile && mode === undefined) {
    const [row] = await sql.query<{ keys: number }>(REGISTERED);
    return row?.keys === 0
      ? ok(`There are no secrets yet; the first start creates ${path}`)
      : fail(
          `ENCRYPTION_KEYS is not set and there is no ${path}, but the database holds secrets`,
          'set ENCRYPTION_KEYS or DATA_DIR to the values that the service uses',
        );
  }
  const ring = await loadKeyRing(config);
  let registered: string[];
  try {
    registered = await requireRegistered(sql, ring);
  } catch (error) {
    return fail(
      (error as Error).message,
      'add that key to ENCRYPTION_KEYS again, after the first one; without it these secrets are lost',
    );
  }
  const said = `The keys (${ring.ids.join(', ')}) decrypt all secrets in the database (keys: ${registered.join(', ') || 'none'})`;
  if (fromFile && ((mode ?? 0) & 0o077) !== 0) {
    return warn(`${said}, but other users can read ${path}`, `run chmod 600 ${path}`);
  }
  if (fromFile && config.databaseUrl !== undefined) {
    return warn(
      `${said}; they are stored in this data folder`,
      'set ENCRYPTION_KEYS to the content of that file for every process that shares the database, and keep a copy elsewhere',
    );
  }
  if (registered.some((id) => id !== ring.primaryId)) {
    return warn(
      `${said}, some with an old key`,
      'run `secrets reencrypt`, then remove the old keys from ENCRYPTION_KEYS',
    );
  }
  return ok(said);
}
