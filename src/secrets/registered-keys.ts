import type { SqlExecutor } from '../database/sql.js';
import { KeyRing } from './key-ring.js';

const PROBE = 'agent-session-service';
const LIST = { name: 'keys-list', text: 'SELECT id, probe FROM encryption_keys ORDER BY id' };
const ADD = {
  name: 'keys-add',
  text: 'INSERT INTO encryption_keys (id, probe) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING',
};

/**
 * Notes the ring's first key in the database, and makes sure that the ring can open all that was sealed there: a
 * process with a wrong or missing key would otherwise find out in the middle of a turn.
 * @throws Error in one line that says which key is wrong or missing.
 */
export async function registerKeys(sql: SqlExecutor, ring: KeyRing): Promise<void> {
  // Before the key is noted: a ring that does not fit must leave no trace that keeps others from starting.
  await requireRegistered(sql, ring);
  await sql.query(ADD, [ring.primaryId, ring.seal(PROBE, contextOf(ring.primaryId))]);
  // And after: somebody may have noted another one in between.
  await requireRegistered(sql, ring);
}

/**
 * Makes sure that the ring can open all that was sealed in the database. Changes nothing.
 * @returns the ids of the keys that secrets in the database were sealed with.
 * @throws Error in one line that says which key is wrong or missing.
 */
export async function requireRegistered(sql: SqlExecutor, ring: KeyRing): Promise<string[]> {
  const registered = await sql.query<{ id: string; probe: string }>(LIST);
  for (const { id, probe } of registered) {
    if (!ring.ids.includes(id)) {
      throw new Error(
        `ENCRYPTION_KEYS: the database holds secrets encrypted with the key "${id}", which is not in the ring`,
      );
    }
    try {
      ring.open(probe, contextOf(id));
    } catch {
      throw new Error(
        `ENCRYPTION_KEYS: the key "${id}" is not the one that the database's secrets were encrypted with`,
      );
    }
  }
  return registered.map(({ id }) => id);
}

function contextOf(id: string): string {
  return `encryption_keys.probe:${id}`;
}
