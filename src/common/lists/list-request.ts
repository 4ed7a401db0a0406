import { badRequest } from '../errors.js';
import type { IncomingMessage } from 'node:http';
import {
  applyDecorators,
  createParamDecorator,
  type ExecutionContext,
  Header,
  type Type,
} from '@nestjs/common';
import { ApiQuery, ApiResponse } from '@nestjs/swagger';
import type { FastifyRequest } from 'fastify';
import type { OwnedRequest } from '../request-decorators.js';

/** The part of a list that a client requests. */
export interface ListQuery {
  /** `undefined`: no limit. */
  limit: number | undefined;
  /** The last item that the client has received; the list continues after it. */
  after: string | undefined;
}

/** Part of a list as the database returns it. */
export interface Page<Row> {
  rows: readonly Row[];
  /** Is this the end of the list? */
  complete: boolean;
}

/** The pages of a list. Each is read only when the consumer requests it. */
export type Pages<Row> = AsyncIterable<Page<Row>>;

/** Maps the rows of each page. */
export async function* mapPages<From, To>(
  pages: Pages<From>,
  convert: (row: From) => To,
): AsyncGenerator<Page<To>> {
  for await (const { rows, complete } of pages) yield { rows: rows.map(convert), complete };
}

export const UNKNOWN_POSITION = 'after does not name an item of this list';

/**
 * The position after which a list continues. A deleted item has no position any more, and guessing one would skip or
 * repeat others.
 * @throws DomainError 400.
 */
export async function positionAfter<Position>(
  { after }: ListQuery,
  find: (after: string) => Promise<Position | undefined>,
): Promise<Position | undefined> {
  if (after === undefined) return undefined;
  const position = await find(after);
  if (position === undefined) throw badRequest(UNKNOWN_POSITION);
  return position;
}

/** The version below which a list of versions (newest first) continues. @throws DomainError 400. */
export function belowVersion({ after }: ListQuery): number {
  if (after === undefined) return 2 ** 31 - 1;
  if (!/^\d{1,9}$/.test(after)) throw badRequest(UNKNOWN_POSITION);
  return Number(after);
}

/** Reads one item more than requested, to find out whether there is more. */
export const lookAhead = ({ limit }: ListQuery): number | undefined =>
  limit === undefined ? undefined : limit + 1;

const MAX_LIMIT = 1_000;
const BAD_LIMIT = `limit must be a whole number from 1 to ${MAX_LIMIT}`;
/** The 400 messages of every list. */
export const LIST_REFUSALS: readonly string[] = [BAD_LIMIT, UNKNOWN_POSITION];

/** The part of a list that a client requests, and where the answer is sent. */
export interface ListRequest extends ListQuery {
  userId: string;
  raw: IncomingMessage;
  /** Records why the answer was cut off, for the request's log line. */
  failed: (error: unknown) => void;
}

/** The paging parameters of a list. Members of the query that are not known are ignored. @throws DomainError 400. */
export const ListOf = createParamDecorator(
  (_data: unknown, context: ExecutionContext): ListRequest => {
    const request = context.switchToHttp().getRequest<FastifyRequest & OwnedRequest>();
    if (!request.owner) throw new Error('A list needs an owner');
    const { limit, after } = request.query as Record<string, unknown>;
    return {
      userId: request.owner.userId,
      limit: limit === undefined ? undefined : readLimit(limit),
      // A parameter that is sent twice names no item.
      after: after === undefined || typeof after === 'string' ? after?.toLowerCase() : '',
      raw: request.raw,
      failed: (error) => {
        request.failure = error;
      },
    };
  },
);

/** Reads the parameter `limit` of a list. @throws DomainError 400. */
export function readLimit(value: unknown): number {
  const limit = typeof value === 'string' && /^\d{1,4}$/.test(value) ? Number(value) : 0;
  if (limit < 1 || limit > MAX_LIMIT) throw badRequest(BAD_LIMIT);
  return limit;
}

/**
 * Describes a list and its paging parameters. The answer is written as text, hence the header.
 * @param after describes the parameter that names the item after which the list continues.
 */
export function ListAnswer(options: { type: Type; after: string }): MethodDecorator {
  return applyDecorators(
    Header('content-type', 'application/json; charset=utf-8'),
    ApiQuery({
      name: 'limit',
      required: false,
      description: 'The maximum number of items to return. Default: all.',
      schema: { type: 'integer', minimum: 1, maximum: MAX_LIMIT },
    }),
    ApiQuery({
      name: 'after',
      required: false,
      description: `${options.after} The list continues after it.`,
      schema: { type: 'string' },
    }),
    ApiResponse({ status: 200, type: options.type }),
  );
}
