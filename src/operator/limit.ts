import { applyDecorators, createParamDecorator, type ExecutionContext } from '@nestjs/common';
import { ApiQuery } from '@nestjs/swagger';
import type { FastifyRequest } from 'fastify';
import { LIST_REFUSALS, readLimit } from '../common/lists/list-request.js';

const DEFAULT_LIMIT = 100;

export const BAD_LIMIT = LIST_REFUSALS[0] ?? '';

/** How many items of a list an operator asks for. @throws DomainError 400. */
export const Limit = createParamDecorator((_data: unknown, context: ExecutionContext): number => {
  const { query } = context.switchToHttp().getRequest<FastifyRequest>();
  const { limit } = query as Record<string, unknown>;
  return limit === undefined ? DEFAULT_LIMIT : readLimit(limit);
});

/** Describes the parameter that {@link Limit} reads. */
export const LimitQuery = (): MethodDecorator =>
  applyDecorators(
    ApiQuery({
      name: 'limit',
      required: false,
      description: `The maximum number of items to return. Default: ${DEFAULT_LIMIT}.`,
      schema: { type: 'integer', minimum: 1, maximum: 1000 },
    }),
  );
