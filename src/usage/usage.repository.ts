import { Injectable } from '@nestjs/common';
import { isUuid, storableInteger, storableText } from '../common/storable.js';
import { Sql, type SqlExecutor } from '../database/sql.js';
import type { UsageEntry } from '../gateway/usage/usage-entry.js';
import { COUNTS } from './usage-columns.js';
import type { Prices } from './prices.js';

/** More is nonsense, and could exceed the range of sums. */
const MAX_TOKENS = 10 ** 10;
const MAX_MODEL = 100;

const SUMMED = [...COUNTS, 'cost_usd', 'unpriced'] as const;
const NAMES = SUMMED.join(', ');
const ADDED = SUMMED.map((name) => `${name} = u.${name} + excluded.${name}`).join(', ');
const VALUES = `
  count(*) FILTER (WHERE f.status BETWEEN 200 AND 299), sum(f.input_tokens), sum(f.output_tokens),
  sum(f.cache_read_input_tokens), sum(f.cache_creation_input_tokens), coalesce(sum(f.cost_usd), 0),
  count(*) FILTER (WHERE f.cost_usd IS NULL)`;

// Rows are inserted in the order of their keys, so that two workers do not wait for each other in a circle.
const RECORD = {
  name: 'usage-record',
  text: `
    WITH fresh AS (
      INSERT INTO usage_requests (id, user_id, session_id, turn_id, api, model, status, input_tokens,
        output_tokens, cache_read_input_tokens, cache_creation_input_tokens, cost_usd, started_at,
        duration_ms)
      SELECT id, "user", session, turn, api, model, status, input_tokens, output_tokens,
        cache_read_input_tokens, cache_creation_input_tokens, cost_usd, to_timestamp(at / 1000),
        "durationMs"
      FROM jsonb_to_recordset($1::jsonb) AS e (id uuid, "user" uuid, session uuid, turn uuid, api text,
        model text, status integer, input_tokens bigint, output_tokens bigint,
        cache_read_input_tokens bigint, cache_creation_input_tokens bigint, cost_usd numeric,
        at float8, "durationMs" bigint)
      ORDER BY id ON CONFLICT (id) DO NOTHING
      RETURNING *
    ), of_turns AS (
      INSERT INTO usage_turns AS u (turn_id, session_id, ${NAMES})
      SELECT f.turn_id, f.session_id, ${VALUES}
      FROM fresh f JOIN turns t ON t.id = f.turn_id GROUP BY 1, 2 ORDER BY 1
      ON CONFLICT (turn_id) DO UPDATE SET ${ADDED}
    ), of_sessions AS (
      INSERT INTO usage_sessions AS u (session_id, ${NAMES})
      SELECT f.session_id, ${VALUES}
      FROM fresh f JOIN sessions s ON s.id = f.session_id GROUP BY 1 ORDER BY 1
      ON CONFLICT (session_id) DO UPDATE SET ${ADDED}
    ), of_days AS (
      INSERT INTO usage_days AS u (user_id, day, api, model, ${NAMES})
      SELECT f.user_id, (f.started_at AT TIME ZONE 'UTC')::date, f.api, f.model, ${VALUES}
      FROM fresh f GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
      ON CONFLICT (user_id, day, api, model) DO UPDATE SET ${ADDED}
    )
    SELECT id FROM fresh`,
};
const FORGET = {
  name: 'usage-forget-session',
  text: `
    WITH turns AS (DELETE FROM usage_turns WHERE session_id = $1)
    DELETE FROM usage_sessions WHERE session_id = $1`,
};
const PURGE = {
  name: 'usage-purge',
  text: `
    DELETE FROM usage_requests WHERE id IN (
      SELECT id FROM usage_requests
      WHERE recorded_at <= now() - make_interval(days => $1) LIMIT $2)
    RETURNING id`,
};
// A request that was under way when its session was deleted may have been added afterwards.
const PURGE_ORPHANS = {
  name: 'usage-purge-orphans',
  text: `
    WITH gone AS (
      DELETE FROM usage_sessions u WHERE NOT EXISTS (SELECT FROM sessions s WHERE s.id = u.session_id)
    )
    DELETE FROM usage_turns u WHERE NOT EXISTS (SELECT FROM sessions s WHERE s.id = u.session_id)`,
};
const PURGE_ROWS = 5_000;

/** Removes the sums of a session, together with the session. The days of its user stay. */
export async function forgetSession(sql: SqlExecutor, sessionId: string): Promise<void> {
  await sql.query(FORGET, [sessionId]);
}

/** Requests to model APIs, each stored once, and their sums. */
@Injectable()
export class UsageRepository {
  constructor(private readonly sql: Sql) {}

  /**
   * Stores requests and adds them to all sums, in one statement. Requests that are stored already change nothing.
   * @returns those that were new
   */
  async record(entries: readonly UsageEntry[], prices: Prices): Promise<UsageEntry[]> {
    const storable = entries.flatMap((entry) => storableEntry(entry) ?? []);
    if (storable.length === 0) return [];
    const values = storable.map((entry) => ({ ...entry, cost_usd: costOf(entry, prices) }));
    const rows = await this.sql.query<{ id: string }>(RECORD, [JSON.stringify(values)]);
    const fresh = new Set(rows.map(({ id }) => id));
    return storable.filter(({ id }) => fresh.delete(id));
  }

  /** Deletes single requests after some days; sums are kept. */
  async purge(days: number): Promise<void> {
    for (;;) {
      const rows = await this.sql.query(PURGE, [days, PURGE_ROWS]);
      if (rows.length < PURGE_ROWS) break;
    }
    await this.sql.query(PURGE_ORPHANS);
  }
}

function costOf(entry: UsageEntry, prices: Prices): number | null {
  const { input_tokens: input, output_tokens: output } = entry;
  const all = input + output + entry.cache_read_input_tokens + entry.cache_creation_input_tokens;
  return all === 0 ? 0 : prices.costOf(entry.model, entry);
}

/** An entry of which the database refuses no value. `undefined` if it belongs to nobody. */
function storableEntry(entry: UsageEntry): UsageEntry | undefined {
  const { id, session, turn, user } = entry;
  if (![id, session, turn, user].every((value) => typeof value === 'string' && isUuid(value)))
    return undefined;
  const tokens = (value: unknown): number => storableInteger(value, { max: MAX_TOKENS }) ?? 0;
  return {
    id,
    session,
    turn,
    user,
    api: entry.api,
    model: storableText(entry.model, MAX_MODEL),
    status: storableInteger(entry.status, { max: 999 }) ?? 0,
    at: storableInteger(entry.at) ?? Date.now(),
    durationMs: storableInteger(entry.durationMs) ?? 0,
    input_tokens: tokens(entry.input_tokens),
    output_tokens: tokens(entry.output_tokens),
    cache_read_input_tokens: tokens(entry.cache_read_input_tokens),
    cache_creation_input_tokens: tokens(entry.cache_creation_input_tokens),
  };
}
