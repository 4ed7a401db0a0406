import type { FastifyInstance } from 'fastify';
import { boundedMethod } from '../common/http/bounded-method.js';
import { onRequestOver, statusOf } from '../common/http/request-context.js';
import { LONG_SECONDS, type Metrics, SHORT_SECONDS } from './metrics.js';

const EVENT_STREAM = 'text/event-stream';

/** Measures each request; streams, which last as long as their clients like, on their own. */
export function measureRequests(fastify: FastifyInstance, metrics: Metrics): void {
  const observe = metrics.histogram(
    'http_request_duration_seconds',
    'Requests, from their arrival to the end of their answer; streams are on their own',
    SHORT_SECONDS,
    ['method', 'route', 'status'],
  );
  const observeStream = metrics.histogram(
    'stream_duration_seconds',
    'Streams, from their request to their end',
    LONG_SECONDS,
    [],
  );
  onRequestOver(fastify, (request, reply) => {
    const seconds = reply.elapsedTime / 1000;
    if (reply.getHeader('content-type') === EVENT_STREAM) observeStream(seconds, {});
    else {
      observe(seconds, {
        method: boundedMethod(request.method),
        route: request.route,
        status: String(statusOf(reply)),
      });
    }
  });
}
