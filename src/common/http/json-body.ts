import type { FastifyInstance } from 'fastify';

/**
 * A body that could not be read. It takes the place of the body instead of failing the request at once, so that
 * authentication, which runs after parsing, still comes first; the validation pipe turns it into its status.
 */
export class UnreadableBody {
  constructor(
    readonly status: 400 | 415,
    readonly detail: string,
  ) {}
}

/** Deeper than any resource of ours, and far from where recursive code runs out of stack. */
const MAX_DEPTH = 64;

/**
 * Replaces Fastify's parsers: JSON only, an empty body is no body, keys such as `__proto__` are plain data that later
 * falls to the whitelist, and whatever else a client sends becomes an {@link UnreadableBody}.
 */
export function useJsonBodies(fastify: FastifyInstance): void {
  fastify.removeAllContentTypeParsers();
  fastify.addContentTypeParser(
    /^application\/(?:[\w.+-]+\+)?json(?:\s*;.*)?$/i,
    { parseAs: 'buffer' },
    (_request, body, done) => done(null, parseJson(body as Buffer)),
  );
  fastify.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) =>
    done(
      null,
      body.length === 0
        ? undefined
        : new UnreadableBody(415, 'Unsupported content type: send application/json'),
    ),
  );
}

const strictUtf8 = new TextDecoder('utf-8', { fatal: true });

/** @returns the parsed value, `undefined` for an empty body, or why it cannot be read. */
export function parseJson(body: Buffer): unknown {
  if (body.length === 0) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(strictUtf8.decode(body));
  } catch {
    return new UnreadableBody(400, 'Invalid JSON in the request body');
  }
  return deeperThan(value, MAX_DEPTH)
    ? new UnreadableBody(400, `Invalid JSON in the request body: nested deeper than ${MAX_DEPTH}`)
    : value;
}

function deeperThan(value: unknown, limit: number): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > limit) return true;
    level = level.flatMap((item) =>
      typeof item === 'object' && item !== null ? Object.values(item) : [],
    );
  }
  return false;
}
