import type { SqlExecutor } from '../database/sql.js';
import { KeyRing } from './key-ring.js';

const PROBE = 'agent-session-service';
const LIST = { name: 'keys-list', text: 'SELECT id, probe FROM encryption_keys ORDER BY id' };
const ADD = {
  name: 'keys-add',
  text: 'INSERT INTO encryption_keys (id, probe) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING',
};

/**
 * Registers the ring's first key in the database and checks that the ring has all keys that the database's secrets
 * need. Otherwise a wrong or missing key would only show in the middle of a turn.
 * @throws Error with a one-line message that names the wrong or missing key.
 */
export async function registerKeys(sql: SqlExecutor, ring: KeyRing): Promise<void> {
  // Check before registering, because a key of an unsuitable ring would keep other processes from starting.
  await requireRegistered(sql, ring);
  await sql.query(ADD, [ring.primaryId, ring.seal(PROBE, contextOf(ring.primaryId))]);
  // Check again, because another process may have registered a key in between.
  await requireRegistered(sql, ring);
}

/**
 * Checks that the ring has all keys that the database's secrets need. Changes nothing.
 * @returns the ids of these keys.
 * @throws Error with a one-line message that names the wrong or missing key.
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
