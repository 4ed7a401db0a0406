import { Injectable } from '@nestjs/common';
import { unprocessable } from '../common/errors.js';
import { Sql, type SqlExecutor } from '../database/sql.js';

const KEPT_SECONDS = 86_400;

const FIND = {
  name: 'idempotency-find',
  text: `
    SELECT session_id, body_hash = $4 AS same FROM idempotency_keys
    WHERE user_id = $1 AND route = $2 AND key = $3
      AND created_at > now() - make_interval(secs => $5)`,
};
const EXPIRE = {
  name: 'idempotency-expire',
  text: `
    DELETE FROM idempotency_keys
    WHERE user_id = $1 AND route = $2 AND key = $3
      AND created_at <= now() - make_interval(secs => $4)`,
};
// Waits for a request with the same key that is under way, and inserts nothing if that one comes to a good end.
const RESERVE = {
  name: 'idempotency-reserve',
  text: `
    INSERT INTO idempotency_keys (user_id, route, key, body_hash, session_id)
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING session_id`,
};
const PURGE = {
  name: 'idempotency-purge',
  text: `DELETE FROM idempotency_keys WHERE created_at <= now() - make_interval(secs => $1)`,
};

/** A request that its client may repeat without it being done twice. */
export interface RepeatableRequest {
  userId: string;
  /** What is asked for, with the id of what it is asked of: keys of different routes have nothing to do with each other. */
  route: string;
  key: string;
  /** SHA-256 of what the body says. */
  bodyHash: Buffer;
}

/** Which requests with an idempotency key were carried out in the last 24 hours. */
@Injectable()
export class IdempotencyRepository {
  constructor(private readonly sql: Sql) {}

  /**
   * @returns the session that the first of these requests was answered with; `undefined` when there was none.
   * @throws Refusal 422 when the first one asked for something else.
   */
  async find(request: RepeatableRequest, sql: SqlExecutor = this.sql): Promise<string | undefined> {
    const [row] = await sql.query<{ session_id: string; same: boolean }>(FIND, [
      request.userId,
      request.route,
      request.key,
      request.bodyHash,
      KEPT_SECONDS,
    ]);
    if (row && !row.same) {
      throw unprocessable('The Idempotency-Key was used before with another request body');
    }
    return row?.session_id;
  }

  /**
   * Makes this the first request with its key, if the transaction commits. Waits for one that is under way.
   * @returns the session that another one was answered with.
   * @throws Refusal 422 when that one asked for something else.
   */
  async reserve(
    sql: SqlExecutor,
    request: RepeatableRequest,
    sessionId: string,
  ): Promise<string | undefined> {
    const { userId, route, key, bodyHash } = request;
    await sql.query(EXPIRE, [userId, route, key, KEPT_SECONDS]);
    const inserted = await sql.query(RESERVE, [userId, route, key, bodyHash, sessionId]);
    return inserted.length > 0 ? undefined : this.find(request, sql);
  }

  /** Removes what is too old to count. */
  async purge(): Promise<void> {
    await this.sql.query(PURGE, [KEPT_SECONDS]);
  }
}
