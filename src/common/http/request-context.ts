import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { inWorkContext, type WorkContext } from '../work-context.js';

const REQUEST_ID = 'x-request-id';
/** What a caller's id may look like: it is repeated in a header and in logs. */
const ACCEPTED_ID = /^[\w.:/+=@-]{1,128}$/;

/** Routes that are asked every few seconds by whoever watches the process. */
export const PROBES: ReadonlySet<string> = new Set(['/healthz', '/readyz']);

/** Looks at a request that is over: answered, or given up by its client. */
type RequestObserver = (request: FastifyRequest, reply: FastifyReply) => void;

const UNMATCHED = 'unmatched';

declare module 'fastify' {
  interface FastifyInstance {
    requestObservers: RequestObserver[];
  }
  interface FastifyRequest {
    work: WorkContext;
    /** The route's template, such as `/sessions/:id`, or `unmatched`; never what the client sent. */
    route: string;
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
  fastify.decorate('requestObservers', []);
  fastify.decorateRequest('work');
  fastify.decorateRequest('route', UNMATCHED);
  fastify.addHook('onRequest', (request, reply, done) => {
    beginRequest(fastify, request, reply);
    request.route = request.routeOptions.url ?? UNMATCHED;
    done();
  });
  // Not before: what reads the body from the socket does not keep the context.
  fastify.addHook('preValidation', (request, _reply, done) => inWorkContext(request.work, done));
}

/** For requests that reach no hook, as they are refused before. */
export function beginRequest(
  fastify: FastifyInstance,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  request.work = { requestId: request.id };
  void reply.header(REQUEST_ID, request.id);
  // Not Fastify's onResponse, which does not come when the client hangs up, as those of streams do.
  reply.raw.once('close', () => {
    for (const observe of fastify.requestObservers) observe(request, reply);
  });
}

/** Has every request looked at when it is over. */
export function onRequestOver(fastify: FastifyInstance, observer: RequestObserver): void {
  fastify.requestObservers.push(observer);
}

/** What nginx made usual for a client that did not wait for the answer. */
const CLIENT_CLOSED_REQUEST = 499;

/** The status that was sent, once a request is over. */
export function statusOf(reply: FastifyReply): number {
  return reply.raw.headersSent ? reply.statusCode : CLIENT_CLOSED_REQUEST;
}
