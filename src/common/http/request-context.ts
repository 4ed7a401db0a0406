import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { inWorkContext, type WorkContext } from '../work-context.js';

const REQUEST_ID = 'x-request-id';
/** Request ids that are accepted from callers. They are repeated in a header and in logs. */
const ACCEPTED_ID = /^[\w.:/+=@-]{1,128}$/;

/** Routes that monitoring requests every few seconds. */
export const PROBES: ReadonlySet<string> = new Set(['/healthz', '/readyz']);

/** Called for a request that is over: answered, or abandoned by its client. */
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

/** The caller's `X-Request-Id` if it is acceptable, else a new id. */
export function requestIdOf({ headers }: Pick<IncomingMessage, 'headers'>): string {
  const given = headers[REQUEST_ID];
  return typeof given === 'string' && ACCEPTED_ID.test(given) ? given : crypto.randomUUID();
}

/** Runs every request in its work context, and returns the request's id to the caller. */
export function useRequestContext(fastify: FastifyInstance): void {
  fastify.decorate('requestObservers', []);
  fastify.decorateRequest('work');
  fastify.decorateRequest('route', UNMATCHED);
  fastify.addHook('onRequest', (request, reply, done) => {
    beginRequest(fastify, request, reply);
    request.route = request.routeOptions.url ?? UNMATCHED;
    done();
  });
  // Not in an earlier hook, because the context would be lost while the body is read from the socket.
  fastify.addHook('preValidation', (request, _reply, done) => inWorkContext(request.work, done));
}

/** Begins a request. Exported for requests that are rejected before any hook runs. */
export function beginRequest(
  fastify: FastifyInstance,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  request.work = { requestId: request.id };
  void reply.header(REQUEST_ID, request.id);
  // Not Fastify's onResponse, which is not called if the client disconnects, as clients of streams do.
  reply.raw.once('close', () => {
    for (const observe of fastify.requestObservers) observe(request, reply);
  });
}

/** Calls the observer for every request that is over. */
export function onRequestOver(fastify: FastifyInstance, observer: RequestObserver): void {
  fastify.requestObservers.push(observer);
}

/** The status that nginx introduced for a client that disconnects before the answer. */
const CLIENT_CLOSED_REQUEST = 499;

/** The status that was sent, once a request is over. */
export function statusOf(reply: FastifyReply): number {
  return reply.raw.headersSent ? reply.statusCode : CLIENT_CLOSED_REQUEST;
}

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/** Maps a request's method to one of a few known words for names and labels, because clients may send anything. */
export function boundedMethod(method: string): string {
  return METHODS.has(method) ? method : 'OTHER';
}
