import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';

const AT_ONCE = 500;

// One statement, so that each version counts exactly once, and one process at a time. Skips locked rows: they are being
// deleted.
const measure = (kind: 'agent' | 'environment', sealed: string) => ({
  name: `${kind}-versions-measure`,
  text: `
    WITH batch AS (
      SELECT v.${kind}_id AS id, v.version, r.user_id
      FROM ${kind}_versions v JOIN ${kind}s r ON r.id = v.${kind}_id
      WHERE v.bytes IS NULL AND pg_try_advisory_xact_lock(hashtext('stored_bytes'))
      LIMIT ${AT_ONCE}
      FOR NO KEY UPDATE OF v SKIP LOCKED FOR KEY SHARE OF r SKIP LOCKED
    ), measured AS (
      UPDATE ${kind}_versions v SET bytes = stored_text_bytes(v.snapshot, v.${sealed})
      FROM batch b WHERE v.${kind}_id = b.id AND v.version = b.version
      RETURNING b.user_id, v.bytes
    ), counted AS (
      UPDATE users u SET stored_bytes = u.stored_bytes + m.bytes
      FROM (SELECT user_id, sum(bytes) AS bytes FROM measured GROUP BY user_id) m
      WHERE u.id = m.user_id
    )
    SELECT count(*)::int AS versions FROM measured`,
});
const MEASURES = [
  measure('agent', 'mcp_secrets_sealed'),
  measure('environment', 'env_vars_sealed'),
];
const LEFT = {
  name: 'versions-not-measured',
  text: `
    SELECT EXISTS (SELECT FROM agent_versions WHERE bytes IS NULL)
      OR EXISTS (SELECT FROM environment_versions WHERE bytes IS NULL) AS left`,
};

/** Measures versions of agents and environments that are older than the limit on stored bytes. */
@Injectable()
export class StoredBytes {
  constructor(private readonly sql: Sql) {}

  /** Measures some versions. @returns whether there are more */
  async measurePiece(): Promise<boolean> {
    for (const statement of MEASURES) await this.sql.query(statement);
    const [row] = await this.sql.query<{ left: boolean }>(LEFT);
    return row?.left === true;
  }
}
