import type { Command } from 'commander';
import { group, withExamples } from './command-line.js';
import { changes, type Operator } from './operator.js';

/** `logs purge`. */
export function addLogCommands(program: Command, operator: Operator): void {
  const logs = group(program, 'logs', 'the event log');

  changes(
    withExamples(
      logs
        .command('purge')
        .description('drop days older than LOG_RETENTION_DAYS; the service does this every hour'),
      ['logs purge', 'logs purge --json'],
    ),
    operator,
    async ({ sql, config }) => {
      const { LogPartitions } = await import('../event-log/log-partitions.js');
      const dropped = await new LogPartitions(sql, config).dropExpired();
      return {
        json: { dropped },
        text: dropped.length === 0 ? 'Nothing to purge' : `Dropped ${dropped.join(', ')}`,
      };
    },
  );
}

const HOW = `To rotate the key: put a new one first in ENCRYPTION_KEYS and keep the old ones after it, restart
every process of the service, run this command, and remove the old keys from ENCRYPTION_KEYS. It
re-encrypts the variables of environments, secrets of tool servers and tokens of repositories,
including those of old versions. It is safe to run while the service runs.`;

/** `secrets reencrypt`. */
export function addSecretsCommands(program: Command, operator: Operator): void {
  const secrets = group(program, 'secrets', 'secrets in the database');

  changes(
    withExamples(
      secrets
        .command('reencrypt')
        .description('re-encrypt all secrets with the first key of ENCRYPTION_KEYS'),
      ['secrets reencrypt', 'secrets reencrypt --json'],
      HOW,
    ),
    operator,
    async ({ sql, config }) => {
      const { loadRegisteredKeys } = await import('./key-ring.js');
      const { reencrypt } = await import('../secrets/reencrypt.js');
      const ring = await loadRegisteredKeys(sql, config);
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
