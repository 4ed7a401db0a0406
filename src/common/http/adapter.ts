import { FastifyAdapter } from '@nestjs/platform-fastify';
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import type { Socket } from 'node:net';
import { useJsonBodies } from './json-body.js';
import type { KnownRoutes } from './known-routes.js';
import { beginRequest, requestIdOf, useRequestContext } from './request-context.js';

/**
 * Fastify as this service needs it: JSON bodies only, no HEAD twins of GET routes, and the `detail` envelope also for
 * what fails before any route is found.
 */
export function createHttpAdapter(options: {
  routes: KnownRoutes;
  bodyLimitBytes: number;
  /** The only paths that are served, if not all: the others answer 404, whatever is registered. */
  onlyPaths?: readonly string[];
}): FastifyAdapter {
  const adapter = new FastifyAdapter({
    bodyLimit: options.bodyLimitBytes,
    exposeHeadRoutes: false,
    forceCloseConnections: true,
    requestTimeout: 60_000,
    // Node would answer without a body; requireHost does it in the envelope.
    http: { requireHostHeader: false },
    routerOptions: { maxParamLength: 256 },
    genReqId: requestIdOf,
    frameworkErrors: (error: FastifyError, request: FastifyRequest, reply: FastifyReply) => {
      beginRequest(fastify, request, reply);
      const tooLong = error.code === 'FST_ERR_MAX_PARAM_LENGTH';
      void reply
        .code(tooLong ? 404 : 400)
        .header('content-type', 'application/json; charset=utf-8')
        .send({ detail: tooLong ? 'Not found' : 'Malformed URL' });
    },
    clientErrorHandler: (error, socket) => answerRaw(error, socket),
  });
  const fastify = adapter.getInstance();
  options.routes.observe(fastify);
  useRequestContext(fastify);
  fastify.addHook('onRequest', requireHost);
  useJsonBodies(fastify);
  const { onlyPaths } = options;
  if (onlyPaths) {
    fastify.addHook('onRequest', (request, reply, done) => {
      if (onlyPaths.includes(request.url.split('?', 1)[0] ?? '')) done();
      else void reply.code(404).send({ detail: 'Not found' });
    });
  }
  return adapter;
}

/** HTTP/1.1 asks for the Host header (RFC 9112, section 3.2). */
function requireHost(request: FastifyRequest, reply: FastifyReply, done: () => void): void {
  if (request.headers.host !== undefined || request.raw.httpVersion === '1.0') done();
  else void reply.code(400).send({ detail: 'The Host header is missing' });
}

/** What Node's HTTP parser refuses never becomes a request; answer on the bare socket. */
function answerRaw(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const [status, detail] =
    error.code === 'HPE_HEADER_OVERFLOW'
      ? ['431 Request Header Fields Too Large', 'The request headers are too large']
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? ['408 Request Timeout', 'The request took too long to arrive']
        : ['400 Bad Request', 'Malformed HTTP request'];
  const body = JSON.stringify({ detail });
  socket.end(
    `HTTP/1.1 ${status}\r\nContent-Type: application/json; charset=utf-8\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  );
}
