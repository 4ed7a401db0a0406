import { createHash } from 'node:crypto';
import type { SqlExecutor } from '../database/sql.js';

const DATABASE = {
  name: 'installation-name',
  text: `
    SELECT (SELECT system_identifier FROM pg_control_system())::text AS system,
      (SELECT oid FROM pg_database WHERE datname = current_database())::text AS database`,
};

/**
 * A short name for the installation that this process belongs to: the same for all processes on its database, by whatever
 * address they reach it, and another one for any other database.
 */
export async function loadInstallationName(sql: SqlExecutor): Promise<string> {
  const [row] = await sql.query<{ system: string; database: string }>(DATABASE);
  if (row === undefined) throw new Error('the database does not say which it is');
  return createHash('sha256').update(`${row.system}/${row.database}`).digest('hex').slice(0, 12);
}
