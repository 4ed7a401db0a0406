import { createHash } from 'node:crypto';
import { createParamDecorator, type ExecutionContext, Injectable } from '@nestjs/common';
import { ApiHeader } from '@nestjs/swagger';
import type { FastifyRequest } from 'fastify';
import { badRequest, unprocessable, DomainError } from '../common/errors.js';
import { Sql, type SqlExecutor } from '../database/sql.js';

const VISIBLE_ASCII = /^[\x21-\x7e]{1,255}$/;

/** Error messages of operations that accept a key. */
export const KEY_MALFORMED = 'Idempotency-Key must be 1 to 255 visible ASCII characters';
export const KEY_REUSED = 'The Idempotency-Key was used before with another request body';

/** Describes the header in the OpenAPI document. */
export const TakesIdempotencyKey = (): MethodDecorator =>
  ApiHeader({
    name: 'Idempotency-Key',
    required: false,
    description:
      'Makes it safe to repeat the request when its answer was lost. For 24 hours, the same key with the same body gives ' +
      'the first answer and does nothing else; with another body it is a 422. 1 to 255 visible ASCII characters.',
    schema: { type: 'string', minLength: 1, maxLength: 255 },
  });

/**
 * Reads the request's `Idempotency-Key`; `undefined` if it has none.
 * @throws DomainError 400 when it is not 1 to 255 visible ASCII characters.
 */
export const IdempotencyKey = createParamDecorator(
  (_data: unknown, context: ExecutionContext): string | undefined =>
    readIdempotencyKey(
      context.switchToHttp().getRequest<FastifyRequest>().headers['idempotency-key'],
    ),
);

export function readIdempotencyKey(header: string | string[] | undefined): string | undefined {
  if (header === undefined) return undefined;
  if (typeof header !== 'string' || !VISIBLE_ASCII.test(header)) {
    throw badRequest(KEY_MALFORMED);
  }
  return header;
}

/** Hashes a body so that the order of members does not matter. */
export function hashBody(body: object): Buffer {
  return createHash('sha256').update(canonical(body)).digest();
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  const members = Object.entries(value)
    .filter(([, member]) => member !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`);
  return `{${members.join(',')}}`;
}

const KEPT_SECONDS = 86_400;

// The column `session_id` holds the id of the resource in the answer, whatever its kind.
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
// Waits for a concurrent request with the same key, and inserts nothing if that one commits.
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

/** A request that the client may repeat safely. */
export interface RepeatableRequest {
  userId: string;
  /** The route and the id of its resource. Keys of different routes are independent. */
  route: string;
  key: string;
  /** SHA-256 of the body. */
  bodyHash: Buffer;
}

/** The requests with an idempotency key in the last 24 hours. */
@Injectable()
export class IdempotencyRepository {
  constructor(private readonly sql: Sql) {}

  /**
   * @returns the id of the resource that answered the first of these requests; `undefined` if there was none.
   * @throws DomainError 422 when the first one had another body.
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
      throw unprocessable(KEY_REUSED);
    }
    return row?.session_id;
  }

  /**
   * Records this as the first request with its key if the transaction commits. Waits for a concurrent one.
   * @returns the id of the resource if another request came first.
   * @throws DomainError 422 when that one had another body.
   */
  async reserve(
    sql: SqlExecutor,
    request: RepeatableRequest,
    id: string,
  ): Promise<string | undefined> {
    const { userId, route, key, bodyHash } = request;
    await sql.query(EXPIRE, [userId, route, key, KEPT_SECONDS]);
    const inserted = await sql.query(RESERVE, [userId, route, key, bodyHash, id]);
    return inserted.length > 0 ? undefined : this.find(request, sql);
  }

  /** Removes expired keys. */
  async purge(): Promise<void> {
    await this.sql.query(PURGE, [KEPT_SECONDS]);
  }
}

/**
 * Called in the transaction that carries out a request, so that a retry does not carry it out again.
 * @param id of the resource in the response.
 */
export type Reserve = (sql: SqlExecutor, id: string) => Promise<void>;

/** Rolls back a transaction because the same request was carried out before. */
export class DoneBefore extends Error {
  constructor(readonly id: string) {
    super('The request was carried out before');
  }
}

/** Carries out a request with an `Idempotency-Key` once, however often it is sent. */
@Injectable()
export class RepeatableRequests {
  constructor(private readonly idempotency: IdempotencyRepository) {}

  /**
   * Runs the work unless a request with the same key has done it already. Of several concurrent ones, only one runs.
   * @throws DomainError 422 when the key was used with another body; errors of the work.
   */
  async once<Result>(options: {
    userId: string;
    /** Method and path: the same key on another route is independent. */
    route: string;
    body: object;
    key: string | undefined;
    /** @param reserve `undefined` for a request without a key. */
    work: (reserve: Reserve | undefined) => Promise<Result>;
    /** Repeats the first response, with the resource of this id. */
    repeat: (id: string) => Promise<Result>;
  }): Promise<Result> {
    const { userId, route, body, key, work, repeat } = options;
    if (key === undefined) return work(undefined);
    const request = { userId, route, key, bodyHash: hashBody(body) };
    const before = await this.idempotency.find(request);
    if (before !== undefined) return repeat(before);
    try {
      return await work(async (sql, id) => {
        const other = await this.idempotency.reserve(sql, request, id);
        if (other !== undefined) throw new DoneBefore(other);
      });
    } catch (error) {
      if (error instanceof DoneBefore) return repeat(error.id);
      // The request may fail now because the same request succeeded a moment ago.
      const meanwhile =
        error instanceof DomainError ? await this.idempotency.find(request) : undefined;
      if (meanwhile === undefined) throw error;
      return repeat(meanwhile);
    }
  }
}
