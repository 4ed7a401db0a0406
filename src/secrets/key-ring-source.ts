import { join } from 'node:path';
import { readOrCreate } from '../common/create-once.js';
import { KeyRing } from './key-ring.js';

/**
 * The ring from `ENCRYPTION_KEYS`, or from a file under the data folder, which is made (mode 0600) if it is not there.
 * Processes that make it at the same time end up with the same one.
 */
export async function loadKeyRing(config: {
  encryptionKeys?: string;
  dataDir: string;
}): Promise<KeyRing> {
  if (config.encryptionKeys !== undefined) return KeyRing.parse(config.encryptionKeys);
  const path = join(config.dataDir, 'encryption-keys');
  const text = await readOrCreate(path, () => `${KeyRing.generateEntry()}\n`, 0o600);
  return KeyRing.parse(text.trim());
}
