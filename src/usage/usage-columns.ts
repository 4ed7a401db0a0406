import type { Tokens } from '../gateway/usage/meter.js';

/** Sums over the requests of a session, a turn or a user. */
export interface UsageSums extends Tokens {
  requests: number;
  /** `null` if the price of one of the requests is not known. */
  cost_usd: number | null;
}

/** The usage of a session or turn as statements read it; `null` sums before the first request. */
export interface StoredUsage {
  sums: UsageSums | null;
  activeSeconds: number;
}

/** The counts of {@link UsageSums} as columns. */
export const COUNTS = [
  'requests',
  'input_tokens',
  'output_tokens',
  'cache_read_input_tokens',
  'cache_creation_input_tokens',
] as const;

/** The columns that count as tokens for budgets, added up. @param table an alias */
export const ALL_TOKENS = (table: string): string =>
  COUNTS.filter((name) => name !== 'requests')
    .map((name) => `${table}.${name}`)
    .join(' + ');

const SUMS = (key: string, table: string, value: string): string => `
  (SELECT jsonb_build_object(
     ${COUNTS.map((name) => `'${name}', g.${name}`).join(', ')},
     'cost_usd', CASE WHEN g.unpriced = 0 THEN g.cost_usd END)
   FROM ${table} g WHERE g.${key} = ${value})`;

const SECONDS = (turn: string): string =>
  `coalesce(extract(epoch FROM coalesce(${turn}.ended_at, now()) - ${turn}.started_at), 0)::float8`;

/** SQL for {@link StoredUsage} of a session. @param session the alias of its row */
export const sessionUsage = (session: string): string => `
  jsonb_build_object(
    'sums', ${SUMS('session_id', 'usage_sessions', `${session}.id`)},
    'activeSeconds', (
      SELECT coalesce(sum(${SECONDS('v')}), 0) FROM turns v WHERE v.session_id = ${session}.id))`;

/** SQL for {@link StoredUsage} of a turn. @param turn the alias of its row */
export const turnUsage = (turn: string): string => `
  jsonb_build_object(
    'sums', ${SUMS('turn_id', 'usage_turns', `${turn}.id`)}, 'activeSeconds', ${SECONDS(turn)})`;
