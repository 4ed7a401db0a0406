import { join } from 'node:path';
import { readOrCreate } from '../common/files.js';
import { KeyRing } from './key-ring.js';
import { Global, Module } from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import { Sql } from '../database/sql.js';
import { registerKeys } from './registered-keys.js';
import { UserKeys } from './user-keys.js';

/**
 * Loads the key ring from `ENCRYPTION_KEYS`, or from a file in the data folder, which is created (mode 0600) if it is
 * missing. When several processes create it at the same time, they all use the same one.
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

/** The key ring, after checking that it has all keys that the database's secrets need, and what users keep sealed. */
@Global()
@Module({
  providers: [
    {
      provide: KeyRing,
      inject: [AppConfig, Sql],
      useFactory: async (config: AppConfig, sql: Sql) => {
        const ring = await loadKeyRing(config);
        await registerKeys(sql, ring);
        return ring;
      },
    },
    UserKeys,
  ],
  exports: [KeyRing, UserKeys],
})
export class SecretsModule {}
