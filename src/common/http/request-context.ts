import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { inWorkContext, type WorkContext } from '../work-context.js';

export const REQUEST_ID = 'x-request-id';
/** What a caller's id may look like: it is repeated in a header and in logs. */
const ACCEPTED_ID = /^[\w.:/+=@-]{1,128}$/;

/** Routes that are asked every few seconds by whoever watches the process. */
export const PROBES: ReadonlySet<string> = new Set(['/healthz', '/readyz']);

declare module 'fastify' {
  interface FastifyRequest {
    work: WorkContext;
    /** Why this request failed, for its log line. */
    failure?: unknown;
  }
}

/** The caller's `X-Request-Id` if it is a sensible one, else a new id. */
export function requestIdOf({ headers }: Pick<IncomingMessage, 'headers'>): string {
  const given = headers[REQUEST_ID];
  return typeof given === 'string' && ACCEPTED_ID.test(given) ? given : crypto.randomUUID();
}

/** Runs every request in its work context, and tells the caller the request's id. */
export function useRequestContext(fastify: FastifyInstance): void {
  fastify.decorateRequest('work');
  fastify.addHook('onRequest', (request, reply, done) => {
    request.work = { requestId: request.id };
    void reply.header(REQUEST_ID, request.id);
    done();
  });
  // Not before: what reads the body from the socket does not keep the context.
  fastify.addHook('preValidation', (request, _reply, done) => inWorkContext(request.work, done));
}

/** The route's template, such as `/sessions/:id`; never what the client sent. */
export function routeOf(request: FastifyRequest): string {
  return request.routeOptions.url ?? 'unmatched';
}
