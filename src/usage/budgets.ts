import { Injectable } from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import { conflict, unprocessable } from '../common/errors.js';
import { Sql } from '../database/sql.js';
import { Prices } from './prices.js';
import { ALL_TOKENS } from './usage-columns.js';

/** What a session may use; both limits hold if both are given. */
export interface Budget {
  tokens?: number;
  usd?: number;
}

const MONTH = `
  LATERAL (
    SELECT coalesce(sum(${ALL_TOKENS('d')}), 0) AS tokens, coalesce(sum(d.cost_usd), 0) AS usd
    FROM usage_days d
    WHERE (l.tokens IS NOT NULL OR l.usd IS NOT NULL)
      AND d.user_id = u.id AND d.day >= date_trunc('month', now() AT TIME ZONE 'UTC')::date) m`;
/** A limit of a user; NULL if there is none. */
const limitOf = (column: string, otherwise: string): string =>
  `nullif(coalesce(u.${column}, ${otherwise}), 0)`;
const USER_LIMITS = `
  LATERAL (
    SELECT ${limitOf('tokens_per_month', '$2::bigint')} AS tokens,
      ${limitOf('usd_per_month', '$3::float8')} AS usd) l`;
const USER_COLUMNS = `
  CASE WHEN m.tokens >= l.tokens THEN l.tokens END AS "userTokens",
  CASE WHEN m.usd >= l.usd THEN l.usd END AS "userUsd"`;
const SESSION_COLUMNS = `
  CASE WHEN ${ALL_TOKENS('g')} >= s.budget_tokens THEN s.budget_tokens END AS "sessionTokens",
  CASE WHEN g.cost_usd >= s.budget_usd THEN s.budget_usd END AS "sessionUsd"`;

// Without a limit, the sums of the month are not read.
const TURNS = {
  name: 'budgets-turns',
  text: `
    SELECT t.id, ${SESSION_COLUMNS}, ${USER_COLUMNS}
    FROM turns t JOIN sessions s ON s.id = t.session_id JOIN users u ON u.id = s.user_id
    CROSS JOIN ${USER_LIMITS}
    LEFT JOIN usage_sessions g ON g.session_id = s.id
    CROSS JOIN ${MONTH}
    WHERE t.id = ANY ($1)`,
};
const SESSION = {
  name: 'budgets-session',
  text: `
    SELECT s.id, ${SESSION_COLUMNS}
    FROM sessions s LEFT JOIN usage_sessions g ON g.session_id = s.id WHERE s.id = $1`,
};
const USER = {
  name: 'budgets-user',
  text: `
    SELECT u.id, ${USER_COLUMNS} FROM users u CROSS JOIN ${USER_LIMITS}
    CROSS JOIN ${MONTH}
    WHERE u.id = $1`,
};

export const NO_PRICE = 'A budget in usd needs a model whose price the service knows';
/** Agents that run scripts use no model. */
const NO_MODEL = 'shell/';

/** The budgets that are used up, as their limits. */
interface Row extends Record<string, unknown> {
  id: string;
  sessionTokens?: number | null;
  sessionUsd?: number | null;
  userTokens?: number | null;
  userUsd?: number | null;
}

/** Tells which budgets of sessions and users are used up. */
@Injectable()
export class Budgets {
  constructor(
    private readonly sql: Sql,
    private readonly config: AppConfig,
    private readonly prices: Prices,
  ) {}

  /** The turns that may use no more, with the reason for clients. */
  async exceededTurns(turnIds: readonly string[]): Promise<Map<string, string>> {
    if (turnIds.length === 0) return new Map();
    const rows = await this.sql.query<Row>(TURNS, [turnIds, ...this.defaults]);
    return new Map(
      rows.flatMap((row): [string, string][] => {
        const reason = reasonOf(row);
        return reason === undefined ? [] : [[row.id, reason]];
      }),
    );
  }

  /** @throws DomainError 409 if the session's budget is used up. */
  async requireForSession(sessionId: string): Promise<void> {
    const [row] = await this.sql.query<Row>(SESSION, [sessionId]);
    const reason = row && reasonOf(row);
    if (reason !== undefined) throw conflict(`${reason}; start a new session.`);
  }

  /**
   * @param model that the session is for, and its budget
   * @throws DomainError 422 if the user's budget is used up, or the session's cannot be checked.
   */
  async requireForTurn(userId: string, model: string, budget: Budget): Promise<void> {
    if (budget.usd !== undefined && !this.isPriced(model)) throw unprocessable(NO_PRICE);
    const [row] = await this.sql.query<Row>(USER, [userId, ...this.defaults]);
    const reason = row && reasonOf(row);
    if (reason !== undefined) throw unprocessable(reason);
  }

  private isPriced(model: string): boolean {
    return model.startsWith(NO_MODEL) || this.prices.nameOf(model) !== undefined;
  }

  private get defaults(): [number, number] {
    return [this.config.tokensPerMonth, this.config.usdPerMonth];
  }
}

function reasonOf(row: Row): string | undefined {
  const { sessionTokens, sessionUsd, userTokens, userUsd } = row;
  const session = amount(sessionTokens, sessionUsd);
  if (session !== undefined) return `Session has used up its budget of ${session}`;
  const user = amount(userTokens, userUsd);
  return user && `User has used up the budget of ${user} for this month`;
}

function amount(tokens?: number | null, usd?: number | null): string | undefined {
  if (typeof tokens === 'number') return `${tokens} tokens`;
  return typeof usd === 'number' ? `${usd} USD` : undefined;
}
