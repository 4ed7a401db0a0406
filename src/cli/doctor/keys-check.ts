import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { loadKeyRing } from '../../secrets/key-ring-source.js';
import { requireRegistered } from '../../secrets/registered-keys.js';
import type { OperatorDatabase } from '../operator-database.js';
import { type Diagnosis, fail, ok, warn } from './finding.js';

const REGISTERED = { name: '', text: 'SELECT count(*)::int AS keys FROM encryption_keys' };

/** Does the ring open what the database holds? Makes no key where there is none. */
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
      ? ok(`There are no secrets yet; the first start makes ${path}`)
      : fail(
          `ENCRYPTION_KEYS is not set and there is no ${path}, but the database holds secrets`,
          'set ENCRYPTION_KEYS or DATA_DIR as the service has them',
        );
  }
  const ring = await loadKeyRing(config);
  let registered: string[];
  try {
    registered = await requireRegistered(sql, ring);
  } catch (error) {
    return fail(
      (error as Error).message,
      'put that key back into the ring, behind the first one; without it these secrets are lost',
    );
  }
  const said = `The ring (${ring.ids.join(', ')}) opens what the database holds (${registered.join(', ') || 'nothing'})`;
  if (fromFile && ((mode ?? 0) & 0o077) !== 0) {
    return warn(`${said}, but others can read ${path}`, `run chmod 600 ${path}`);
  }
  if (fromFile && config.databaseUrl !== undefined) {
    return warn(
      `${said}; it is a file of this data folder`,
      'set ENCRYPTION_KEYS to its content for every process that shares the database, and keep a copy elsewhere',
    );
  }
  if (registered.some((id) => id !== ring.primaryId)) {
    return warn(
      `${said}, some of it with an old key`,
      'run `secrets reencrypt`, then take the old keys out of ENCRYPTION_KEYS',
    );
  }
  return ok(said);
}
