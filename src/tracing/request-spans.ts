import type { FastifyInstance, FastifyRequest } from 'fastify';
import { boundedMethod, onRequestOver, PROBES, statusOf } from '../common/http/request-context.js';
import {
  type Span,
  type SpanAttributes,
  type Tracing,
  formatTraceparent,
  parseTraceparent,
} from './tracing.js';

declare module 'fastify' {
  interface FastifyRequest {
    span?: Span;
  }
}

/**
 * Creates a span for each request, as part of the caller's trace if the request names one. If traces are disabled, the
 * caller's trace context is still passed on to the turn.
 */
export function traceRequests(fastify: FastifyInstance, tracing: Tracing): void {
  fastify.decorateRequest('span');
  fastify.addHook('onRequest', (request, _reply, done) => {
    const context = parseTraceparent(request.headers.traceparent);
    const parent = context && formatTraceparent(context);
    const route = request.route;
    if (!PROBES.has(route)) {
      const method = boundedMethod(request.method);
      request.span = tracing.start({
        name: `${method} ${route}`,
        kind: 'server',
        parent,
        attributes: { 'http.request.method': method, 'http.route': route },
      });
    }
    request.work.traceparent = request.span?.traceparent ?? parent;
    done();
  });
  onRequestOver(fastify, (request, reply) => {
    const statusCode = statusOf(reply);
    request.span?.end({
      error: statusCode >= 500 ? String(statusCode) : undefined,
      attributes: { 'http.response.status_code': statusCode, ...idsOf(request) },
    });
  });
}

function idsOf({ work }: FastifyRequest): SpanAttributes {
  return {
    ...(work.requestId === undefined ? {} : { 'request.id': work.requestId }),
    ...(work.sessionId === undefined ? {} : { 'session.id': work.sessionId }),
  };
}
