import type { SqlExecutor, Statement } from '../database/sql.js';
import { KeyRing, secretContext } from './key-ring.js';

const BATCH = 100;
/**
 * Re-encryption ends after a pass that finds nothing. If it takes more passes than this, another process still encrypts
 * with an old key.
 */
const MAX_PASSES = 10;

/** An encrypted column. `keys` are the columns of the primary key, from which the context is built. */
interface SealedColumn {
  table: string;
  column: string;
  keys: readonly { column: string; type: 'uuid' | 'integer' | 'text' }[];
  context: (...keys: never[]) => string;
}

const ID = [{ column: 'id', type: 'uuid' }] as const;
const versionOf = (column: string) =>
  [
    { column, type: 'uuid' },
    { column: 'version', type: 'integer' },
  ] as const;

/** All encrypted columns. Add new ones here. */
const COLUMNS: readonly SealedColumn[] = [
  {
    table: 'environments',
    column: 'env_vars_sealed',
    keys: ID,
    context: secretContext.environment,
  },
  {
    table: 'environment_versions',
    column: 'env_vars_sealed',
    keys: versionOf('environment_id'),
    context: secretContext.environmentVersion,
  },
  { table: 'agents', column: 'mcp_secrets_sealed', keys: ID, context: secretContext.agent },
  {
    table: 'agent_versions',
    column: 'mcp_secrets_sealed',
    keys: versionOf('agent_id'),
    context: secretContext.agentVersion,
  },
  { table: 'sessions', column: 'secrets_sealed', keys: ID, context: secretContext.session },
  {
    table: 'user_keys',
    column: 'key_sealed',
    keys: [
      { column: 'user_id', type: 'uuid' },
      { column: 'provider', type: 'text' },
    ],
    context: secretContext.userKey,
  },
];

const PRUNE: Statement = {
  name: 'keys-prune',
  text: `
    DELETE FROM encryption_keys WHERE id <> $1 ${COLUMNS.map(
      ({ table, column }) =>
        `AND NOT EXISTS (SELECT FROM ${table} WHERE split_part(${column}, '.', 2) = encryption_keys.id)`,
    ).join(' ')}
    RETURNING id`,
};

/** The result of {@link reencrypt}. */
export interface Reencryption {
  /** The key that all secrets are encrypted with now. */
  keyId: string;
  /** The number of secrets that were re-encrypted. */
  resealed: number;
  /** Keys that no secret uses any more. They can be removed from the ring. */
  prunedKeyIds: string[];
}

/**
 * Re-encrypts all secrets that do not use the ring's first key, in small batches, and unregisters the keys that are no
 * longer used. Safe to run beside services whose rings have the same first key: rows that they change at the same time
 * are skipped and checked again.
 * @throws Error when a secret cannot be decrypted with the ring.
 */
export async function reencrypt(sql: SqlExecutor, ring: KeyRing): Promise<Reencryption> {
  let resealed = 0;
  for (const column of COLUMNS) resealed += await reencryptColumn(sql, ring, column);
  const pruned = await sql.query<{ id: string }>(PRUNE, [ring.primaryId]);
  return { keyId: ring.primaryId, resealed, prunedKeyIds: pruned.map(({ id }) => id).sort() };
}

async function reencryptColumn(
  sql: SqlExecutor,
  ring: KeyRing,
  column: SealedColumn,
): Promise<number> {
  let total = 0;
  for (let pass = 0; pass < MAX_PASSES; pass += 1) {
    const { found, resealed } = await passOver(sql, ring, column);
    total += resealed;
    if (found === 0) return total;
  }
  throw new Error(
    `${column.table} still receives secrets encrypted with another key: restart every process with the new ENCRYPTION_KEYS first`,
  );
}

/** Iterates in primary key order, so that each row is read only once. */
async function passOver(
  sql: SqlExecutor,
  ring: KeyRing,
  { table, column, keys, context }: SealedColumn,
): Promise<{ found: number; resealed: number }> {
  const names = keys.map((key) => key.column).join(', ');
  const bind = (from: number) =>
    keys.map(({ type }, index) => `$${from + index}::${type}`).join(', ');
  const sealedByOthers = `${column} IS NOT NULL AND split_part(${column}, '.', 2) <> $1`;
  const page = (after: boolean): Statement => ({
    name: `reencrypt-${table}-${after ? 'next' : 'first'}`,
    text: `SELECT ${names}, ${column} AS sealed FROM ${table}
            WHERE ${sealedByOthers} ${after ? `AND (${names}) > (${bind(2)})` : ''}
            ORDER BY ${names} LIMIT ${BATCH}`,
  });
  const write: Statement = {
    name: `reencrypt-${table}-write`,
    text: `UPDATE ${table} SET ${column} = $1
            WHERE ${column} = $2 AND (${names}) = (${bind(3)}) RETURNING 1 AS written`,
  };

  let found = 0;
  let resealed = 0;
  let last: unknown[] | undefined;
  for (;;) {
    const rows = await sql.query<Record<string, unknown> & { sealed: string }>(
      page(last !== undefined),
      [ring.primaryId, ...(last ?? [])],
    );
    for (const row of rows) {
      last = keys.map((key) => row[key.column]);
      const place = context(...(last as never[]));
      const sealed = ring.seal(ring.open(row.sealed, place), place);
      resealed += (await sql.query(write, [sealed, row.sealed, ...last])).length;
    }
    found += rows.length;
    if (rows.length < BATCH) return { found, resealed };
  }
}
