import { Global, Module } from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import { Sql } from '../database/sql.js';
import { loadKeyRing } from './key-ring-source.js';
import { KeyRing } from './key-ring.js';
import { registerKeys } from './registered-keys.js';

/** The key ring, checked against the keys that the database's secrets were encrypted with. */
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
  ],
  exports: [KeyRing],
})
export class SecretsModule {}
