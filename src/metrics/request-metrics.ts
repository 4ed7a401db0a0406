import type { FastifyInstance } from 'fastify';
import { boundedMethod, onRequestOver, statusOf } from '../common/http/request-context.js';
import { LONG_SECONDS, type Metrics, SHORT_SECONDS } from './metrics.js';

const EVENT_STREAM = 'text/event-stream';

/** Measures each request. Streams have a separate metric, because they last as long as their clients like. */
export function measureRequests(fastify: FastifyInstance, metrics: Metrics): void {
  const observe = metrics.histogram(
    'http_request_duration_seconds',
    'Time from a request to the end of its response, without streams',
    SHORT_SECONDS,
    ['method', 'route', 'status'],
  );
  const observeStream = metrics.histogram(
    'stream_duration_seconds',
    'Time from the request of a stream to its end',
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
