import { createHash } from 'node:crypto';
import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import type { FastifyRequest } from 'fastify';
import { badRequest } from '../common/errors.js';

const VISIBLE_ASCII = /^[\x21-\x7e]{1,255}$/;

/**
 * The request's `Idempotency-Key`; `undefined` without one.
 * @throws Refusal 400 when it is not 1 to 255 visible ASCII characters.
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
    throw badRequest('Idempotency-Key must be 1 to 255 visible ASCII characters');
  }
  return header;
}

/** The same for two bodies that say the same, whatever the order of their members. */
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
