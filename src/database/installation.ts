import type { Sql, SqlExecutor } from './sql.js';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readOrCreate } from '../common/files.js';
import { isUuid } from '../common/storable.js';
import { clusterPath } from './embedded/cluster.js';
import { hasCode } from '../common/missing-file.js';

/** The server and database of a connection, and the name that labelled objects on engines before there were ids. */
const ORIGIN = {
  name: 'installation-origin',
  text: `
    WITH here AS (
      SELECT (SELECT system_identifier FROM pg_control_system())::text || '/' ||
        (SELECT oid FROM pg_database WHERE datname = current_database())::text AS origin)
    SELECT origin, left(encode(sha256(convert_to(origin, 'UTF8')), 'hex'), 12) AS former FROM here`,
};
// A database from before there were ids keeps the name that its objects on engines are labelled with.
const CREATE = {
  name: 'installation-create',
  text: `
    INSERT INTO installation (id, origin)
    SELECT CASE WHEN $2::text IS NOT NULL AND EXISTS (SELECT FROM users) THEN $2
      ELSE left(replace(gen_random_uuid()::text, '-', ''), 12) END, $1
    ON CONFLICT DO NOTHING`,
};
const FIND = { name: 'installation-find', text: 'SELECT id, origin FROM installation' };
const MOVE = { name: 'installation-move', text: 'UPDATE installation SET origin = $1' };
const RENEW = {
  name: 'installation-renew',
  text: `
    UPDATE installation SET created_at = now(), origin = $1,
      id = left(replace(gen_random_uuid()::text, '-', ''), 12)
    RETURNING id`,
};
const KNOWS_HOST = {
  name: 'installation-knows-host',
  text: `
    SELECT EXISTS (SELECT FROM workers WHERE host = $1)
      OR EXISTS (SELECT FROM sandboxes WHERE host = $1) AS known`,
};
const FAIL_SESSIONS = {
  name: 'installation-fail-sessions',
  text: `
    UPDATE sessions SET status = 'failed', exit_code = NULL, error = $1, updated_at = now()
    WHERE status IN ('pending', 'running')`,
};
const FAIL_TURNS = {
  name: 'installation-fail-turns',
  text: `
    UPDATE turns SET status = 'failed', error = $1, ended_at = now(), lease_owner = NULL,
      lease_expires_at = NULL, fencing = fencing + 1
    WHERE status IN ('pending', 'running')`,
};
const INSUFFICIENT_PRIVILEGE = '42501';
const UNDEFINED_TABLE = '42P01';

/** The installation record of a database. */
export interface InstallationRecord {
  /** A short hexadecimal id. Also stored in data folders and on engine objects. */
  id: string;
  /** Where the id was created; `null` if the server did not reveal it. */
  origin: string | null;
  /** Where the database is now; `null` if the server does not reveal it. */
  here: string | null;
}

/** @returns the installation of a migrated database; the first process that calls it creates the id. */
export async function ensureInstallation(sql: SqlExecutor): Promise<InstallationRecord> {
  const there = await findInstallation(sql);
  if (there !== undefined) return there;
  const { origin, former } = await originOf(sql);
  await sql.query(CREATE, [origin, former]);
  const made = await findInstallation(sql);
  if (made === undefined) throw new Error('the installation has no record in the database');
  return made;
}

/** Like {@link ensureInstallation}, but writes nothing: `undefined` if there is no record yet. */
export async function findInstallation(sql: SqlExecutor): Promise<InstallationRecord | undefined> {
  try {
    const [row] = await sql.query<{ id: string; origin: string | null }>(FIND);
    return row && { ...row, here: (await originOf(sql)).origin };
  } catch (error) {
    if (codeOf(error) === UNDEFINED_TABLE) return undefined;
    throw error;
  }
}

/** Records the current place of a database that was moved or restored from a backup. */
export async function acceptOrigin(sql: SqlExecutor): Promise<void> {
  await sql.query(MOVE, [(await originOf(sql)).origin]);
}

/**
 * Turns a copy of a database into a new installation. The sandboxes on record belong to the original, so the turns that
 * needed them end with `error`.
 * @param forgetSandboxes removes their records. @returns the new id
 */
export async function renewInstallation(
  sql: Sql,
  error: string,
  forgetSandboxes: (transaction: SqlExecutor) => Promise<void>,
): Promise<string> {
  const { origin } = await originOf(sql);
  return sql.transaction(async (transaction) => {
    await transaction.query(FAIL_SESSIONS, [error]);
    await transaction.query(FAIL_TURNS, [error]);
    await forgetSandboxes(transaction);
    const [row] = await transaction.query<{ id: string }>(RENEW, [origin]);
    if (row === undefined) throw new Error('the installation has no record in the database');
    return row.id;
  });
}

/** Whether the database has a record of a worker or a sandbox on this host. */
export async function knowsHost(sql: SqlExecutor, host: string): Promise<boolean> {
  const [row] = await sql.query<{ known: boolean }>(KNOWS_HOST, [host]);
  return row?.known ?? false;
}

async function originOf(
  sql: SqlExecutor,
): Promise<{ origin: string | null; former: string | null }> {
  try {
    const [row] = await sql.query<{ origin: string; former: string }>(ORIGIN);
    return row ?? { origin: null, former: null };
  } catch (error) {
    // Some hosted servers hide this. There, a copy cannot be distinguished from its original.
    if (codeOf(error) === INSUFFICIENT_PRIVILEGE) return { origin: null, former: null };
    throw error;
  }
}

const codeOf = (error: unknown): unknown => (error as { code?: unknown } | null)?.code;

const ID_FILE = 'installation';

/** The installation and host that a data folder belongs to. */
export interface DataFolder {
  /** The id of the folder's installation; `undefined` if no installation has claimed it yet. */
  id: string | undefined;
  /** The name of the folder's host, if it ever held sandboxes. */
  host: string | undefined;
  hasSandboxes: boolean;
  /** Whether it contains an embedded PostgreSQL cluster. */
  hasCluster: boolean;
}

export async function readDataFolder(dataDir: string): Promise<DataFolder> {
  const names = await readdir(join(dataDir, 'sandboxes')).catch((error: unknown) => {
    if (hasCode(error, 'ENOENT')) return [];
    throw error;
  });
  return {
    id: await textOf(join(dataDir, ID_FILE)),
    host: await textOf(join(dataDir, 'host-id')),
    hasSandboxes: names.some(isUuid),
    hasCluster: existsSync(join(clusterPath(dataDir), 'PG_VERSION')),
  };
}

/** Claims an unclaimed folder. @returns the id of its installation; if several claim it at once, the first one wins */
export async function claimDataFolder(dataDir: string, id: string): Promise<string> {
  return (await readOrCreate(join(dataDir, ID_FILE), () => `${id}\n`)).trim();
}

/** Assigns a folder to an installation, regardless of its previous one. */
export async function giveDataFolder(dataDir: string, id: string): Promise<void> {
  const draft = join(dataDir, `${ID_FILE}.${randomBytes(6).toString('hex')}.new`);
  await writeFile(draft, `${id}\n`, { flush: true });
  await rename(draft, join(dataDir, ID_FILE));
}

async function textOf(path: string): Promise<string | undefined> {
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw error;
  }
}

/** The database and the data folder belong to different installations. The message is one line for the operator. */
export class InstallationMismatch extends Error {
  override readonly name = 'InstallationMismatch';
}

/**
 * Checks that a migrated database and a data folder belong to the same installation before any sandbox is touched.
 * Otherwise sandboxes that only one of them knows would be treated as orphans and destroyed.
 *
 * A folder that is not claimed yet is assigned to the database, unless it contains sandboxes of a host that the
 * database does not know. The caller must hold the folder's lock.
 *
 * @returns the installation's id
 * @throws InstallationMismatch
 */
export async function joinInstallation(sql: SqlExecutor, dataDir: string): Promise<string> {
  const record = await ensureInstallation(sql);
  const folder = await readDataFolder(dataDir);
  const problem = await mismatchOf(sql, record, folder, dataDir);
  if (problem !== undefined) throw new InstallationMismatch(problem);
  if (folder.id === undefined) {
    const owner = await claimDataFolder(dataDir, record.id);
    if (owner !== record.id) throw new InstallationMismatch(foreign(dataDir, owner, record.id));
  }
  return record.id;
}

/** Like {@link joinInstallation}, but changes nothing. @returns what does not match; `undefined` if everything does */
export async function mismatchOf(
  sql: SqlExecutor,
  { id, origin, here }: InstallationRecord,
  folder: DataFolder,
  dataDir: string,
): Promise<string | undefined> {
  if (origin !== null && here !== null && origin !== here) {
    return (
      `The database is a copy: installation ${id} was made in ${origin} (server/database) and this is ${here}. Run ` +
      '`agent-sessions installation adopt` if the original will never run again, or `agent-sessions installation renew` ' +
      'to make the copy an installation of its own'
    );
  }
  if (folder.id !== undefined) {
    return folder.id === id ? undefined : foreign(dataDir, folder.id, id);
  }
  if (!folder.hasSandboxes) return undefined;
  if (folder.host !== undefined && (await knowsHost(sql, folder.host))) return undefined;
  return (
    `DATA_DIR ${dataDir} holds sandboxes that the database (installation ${id}) does not know: set DATABASE_URL to ` +
    'their database or DATA_DIR to another folder, or run `agent-sessions installation adopt` to give them up'
  );
}

/**
 * Refuses to create a new PostgreSQL in a folder that belongs to an installation with a database elsewhere. The most
 * likely cause is a missing DATABASE_URL.
 * @throws InstallationMismatch
 */
export async function requireOwnCluster(dataDir: string): Promise<void> {
  const { id, hasCluster } = await readDataFolder(dataDir);
  if (id === undefined || hasCluster) return;
  throw new InstallationMismatch(
    `DATA_DIR ${dataDir} belongs to installation ${id}, whose database is not in it: set DATABASE_URL to that database or ` +
      'DATA_DIR to another folder, or run `agent-sessions installation adopt` to begin with an empty database and give ' +
      'up the sandboxes in the folder',
  );
}

function foreign(dataDir: string, owner: string, id: string): string {
  return (
    `DATA_DIR ${dataDir} belongs to installation ${owner} and the database is installation ${id}: set DATABASE_URL to ` +
    `the database of ${owner} or DATA_DIR to another folder, or run \`agent-sessions installation adopt\` to give ` +
    'up the sandboxes in the folder'
  );
}
