import type { Command } from 'commander';
import { Sql } from '../database/sql.js';
import { loadKeyRing } from '../secrets/key-ring-source.js';
import { reencrypt } from '../secrets/reencrypt.js';
import { registerKeys } from '../secrets/registered-keys.js';
import { group, type ReadConfig, runs } from './command-line.js';
import { withDatabase } from './operator-database.js';

const HELP = `
To change the key: put a new one first in ENCRYPTION_KEYS and leave the old ones behind it, restart
every process of the service, run this, and take the old ones out of ENCRYPTION_KEYS.`;

/** `secrets reencrypt`. */
export function addSecretsCommands(program: Command, readConfig: ReadConfig): void {
  const secrets = group(program, 'secrets', 'secrets in the database');

  runs(
    secrets
      .command('reencrypt')
      .description('encrypt all secrets with the first key of ENCRYPTION_KEYS')
      .addHelpText('after', HELP),
    async () =>
      withDatabase(readConfig(), async (dataSource) => {
        const sql = new Sql(dataSource);
        const ring = await loadKeyRing(readConfig());
        await registerKeys(sql, ring);
        const { keyId, resealed, prunedKeyIds } = await reencrypt(sql, ring);
        const unused =
          prunedKeyIds.length > 0 ? `; no longer needed: ${prunedKeyIds.join(', ')}` : '';
        return {
          json: { key_id: keyId, resealed, unused_key_ids: prunedKeyIds },
          text: `Encrypted ${resealed} secrets with the key ${keyId}${unused}`,
        };
      }),
  );
}
