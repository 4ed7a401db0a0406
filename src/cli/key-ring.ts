import type { AppConfig } from '../config/app-config.js';
import type { Sql } from '../database/sql.js';
import type { KeyRing } from '../secrets/key-ring.js';
import { registerKeys } from '../secrets/registered-keys.js';
import { loadKeyRing } from '../secrets/secrets.module.js';

/** The keys of the configuration. @throws Error if they are not those of the database */
export async function loadRegisteredKeys(sql: Sql, config: AppConfig): Promise<KeyRing> {
  const ring = await loadKeyRing(config);
  await registerKeys(sql, ring);
  return ring;
}
