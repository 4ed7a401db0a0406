import { Injectable } from '@nestjs/common';
import { Clock } from '../common/clock.js';
import { requestLimitReached } from '../common/errors.js';
import type { Owner } from '../common/request-decorators.js';
import { AppConfig } from '../config/app-config.js';
import { Sql } from '../database/sql.js';

/** A user's minute starts with the first request. */
const COUNT = {
  name: 'request-counts-count',
  text: `
    INSERT INTO request_counts AS c (user_id, since, requests) VALUES ($1, now(), 1)
    ON CONFLICT (user_id) DO UPDATE SET
      requests = CASE WHEN c.since > now() - interval '1 minute' THEN c.requests + 1 ELSE 1 END,
      since = CASE WHEN c.since > now() - interval '1 minute' THEN c.since ELSE now() END
    RETURNING requests,
      (extract(epoch FROM since + interval '1 minute' - now()) * 1000)::float8 AS "endsInMs"`,
};

/**
 * Enforces `REQUESTS_PER_MINUTE` for each user. The database counts, so that the limit holds across processes. Only
 * users with a limit cost a statement, and a user over the limit costs none until the minute ends.
 */
@Injectable()
export class RequestRate {
  /** Users over their limit: when their minute ends (monotonic clock), and the limit that applied. */
  private readonly refused = new Map<string, { until: number; limit: number }>();

  constructor(
    private readonly sql: Sql,
    private readonly clock: Clock,
    private readonly config: AppConfig,
  ) {}

  /** @throws DomainError 429. */
  async count({ userId, requestsPerMinute }: Owner): Promise<void> {
    const limit = requestsPerMinute ?? this.config.requestsPerMinute;
    if (limit === 0) return;
    const now = this.clock.monotonic();
    const refused = this.refused.get(userId);
    if (refused?.limit === limit && now < refused.until) throw refusal(limit, refused.until - now);
    this.refused.delete(userId);
    const [row] = await this.sql.query<{ requests: number; endsInMs: number }>(COUNT, [userId]);
    if (!row || row.requests <= limit) return;
    this.refused.set(userId, { until: now + row.endsInMs, limit });
    throw refusal(limit, row.endsInMs);
  }
}

const refusal = (limit: number, waitMs: number) =>
  requestLimitReached(limit, Math.max(1, Math.ceil(waitMs / 1000)));
