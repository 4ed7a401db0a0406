import type { SqlExecutor } from '../database/sql.js';
import { COUNTS, type UsageSums } from './usage-columns.js';

/** What a user has used of a model. */
export interface UsageRecord extends UsageSums {
  user: string;
  /** The API of the model: `anthropic`, `openai` or `google`. */
  provider: string;
  model: string;
}

const REPORT = {
  name: 'usage-report',
  text: `
    SELECT u.name AS user, d.api AS provider, d.model,
      ${COUNTS.map((name) => `sum(d.${name})::bigint AS ${name}`).join(', ')},
      CASE WHEN sum(d.unpriced) = 0 THEN sum(d.cost_usd)::float8 END AS cost_usd
    FROM usage_days d JOIN users u ON u.id = d.user_id
    WHERE ($1::text IS NULL OR u.name = $1)
      AND d.day > (now() AT TIME ZONE 'UTC')::date - $2::integer
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`,
};

/** By user, provider and model. @param filter `days`: today and the days before */
export async function usageOfUsers(
  sql: SqlExecutor,
  { user, days }: { user?: string; days: number },
): Promise<UsageRecord[]> {
  return sql.query<UsageRecord & Record<string, unknown>>(REPORT, [user ?? null, days]);
}
