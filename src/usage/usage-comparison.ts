import { Injectable, Logger } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import { KEY_PREFIXES } from '../gateway/grants.js';
import { type Labels, Metrics } from '../metrics/metrics.js';
import { ALL_TOKENS } from './usage-columns.js';

const COUNTED = {
  turn: {
    name: 'usage-counted-turn',
    text: `SELECT (${ALL_TOKENS('u')})::float8 AS tokens FROM usage_turns u WHERE turn_id = $1`,
  },
  session: {
    name: 'usage-counted-session',
    text: `SELECT (${ALL_TOKENS('u')})::float8 AS tokens FROM usage_sessions u WHERE session_id = $1`,
  },
};

/** A turn that has ended, with what its program has reported. */
export interface ReportedTurn {
  id: string;
  sessionId: string;
  provider: string;
  /** All kinds of tokens, of the turn or of the session so far. */
  tokens: { count: number; of: string };
}

/** Compares the tokens that agent programs report with those that the gateway has counted. */
@Injectable()
export class UsageComparison {
  private readonly logger = new Logger('Usage');
  private readonly reported: (labels: Labels<'provider'>, by: number) => void;
  private readonly difference: (labels: Labels<'provider' | 'side'>, by: number) => void;

  constructor(
    private readonly sql: Sql,
    metrics: Metrics,
  ) {
    this.reported = metrics.labelled(
      'reported_tokens',
      'Tokens that agent programs have reported themselves',
      ['provider'],
    );
    this.difference = metrics.labelled(
      'unmatched_tokens',
      'Tokens that only agent programs (side program) or only the gateway (side gateway) counted',
      ['provider', 'side'],
    );
    // So that rates are right from the first turn on.
    for (const provider of Object.keys(KEY_PREFIXES)) this.note(provider, 0, 0);
  }

  /** Call when the usage of the turn is stored. Failures are logged. */
  async compare({ id, sessionId, provider, tokens }: ReportedTurn): Promise<void> {
    try {
      const [row] =
        tokens.of === 'session'
          ? await this.sql.query<{ tokens: number }>(COUNTED.session, [sessionId])
          : await this.sql.query<{ tokens: number }>(COUNTED.turn, [id]);
      this.note(provider, tokens.count, row?.tokens ?? 0);
    } catch (error) {
      this.logger.warn(`The usage of turn ${id} could not be compared: ${String(error)}`);
    }
  }

  private note(provider: string, reported: number, counted: number): void {
    this.reported({ provider }, reported);
    this.difference({ provider, side: 'program' }, Math.max(0, reported - counted));
    this.difference({ provider, side: 'gateway' }, Math.max(0, counted - reported));
  }
}
