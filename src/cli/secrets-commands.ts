import type { Command } from 'commander';
import { loadKeyRing } from '../secrets/key-ring-source.js';
import { reencrypt } from '../secrets/reencrypt.js';
import { registerKeys } from '../secrets/registered-keys.js';
import { group, withExamples } from './command-line.js';
import { changes, type Operator } from './operator-database.js';

const HOW = `To change the key: put a new one first in ENCRYPTION_KEYS and leave the old ones behind it, restart
every process of the service, run this, and take the old ones out of ENCRYPTION_KEYS. Values of
environments, secrets of tool servers and tokens of repositories are all encrypted anew, also those
of old versions. Safe beside a running service.`;

/** `secrets reencrypt`. */
export function addSecretsCommands(program: Command, operator: Operator): void {
  const secrets = group(program, 'secrets', 'secrets in the database');

  changes(
    withExamples(
      secrets
        .command('reencrypt')
        .description('encrypt all secrets with the first key of ENCRYPTION_KEYS'),
      ['secrets reencrypt', 'secrets reencrypt --json'],
      HOW,
    ),
    operator,
    async ({ sql, config }) => {
      const ring = await loadKeyRing(config);
      await registerKeys(sql, ring);
      const { keyId, resealed, prunedKeyIds } = await reencrypt(sql, ring);
      const unused =
        prunedKeyIds.length > 0 ? `; no longer needed: ${prunedKeyIds.join(', ')}` : '';
      return {
        object: keyId,
        json: { key_id: keyId, resealed, unused_key_ids: prunedKeyIds },
        text: `Encrypted ${resealed} secrets with the key ${keyId}${unused}`,
      };
    },
  );
}
