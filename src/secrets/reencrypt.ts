import type { SqlExecutor, Statement } from '../database/sql.js';
import { KeyRing } from './key-ring.js';
import { secretContext } from './secret-contexts.js';

const BATCH = 100;
/** A pass that finds nothing ends it; more passes than this mean that somebody keeps sealing with another key. */
const MAX_PASSES = 10;

/** A column of sealed texts. `keys` are the primary key's columns, and what the context is made of. */
interface SealedColumn {
  table: string;
  column: string;
  keys: readonly { column: string; type: 'uuid' | 'integer' }[];
  context: (...keys: never[]) => string;
}

const ID = [{ column: 'id', type: 'uuid' }] as const;
const versionOf = (column: string) =>
  [
    { column, type: 'uuid' },
    { column: 'version', type: 'integer' },
  ] as const;

/** All of them. A new sealed column is one more line. */
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

/** What {@link reencrypt} did. */
export interface Reencryption {
  /** The key that everything is sealed with now. */
  keyId: string;
  /** How many secrets were sealed anew. */
  resealed: number;
  /** Keys that nothing needs any more: they may leave the ring. */
  prunedKeyIds: string[];
}

/**
 * Seals every secret that another key sealed with the ring's first key, in small batches, and forgets the keys that
 * nothing needs any more. Safe beside running services as long as their rings have the first key: a row that they
 * change meanwhile is left to them and looked at again.
 * @throws Error when a secret cannot be opened with the ring.
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
    `${column.table} keeps getting secrets of another key: restart every process with the new ring first`,
  );
}

/** Walks along the primary key, so that each row is read once however many there are. */
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
