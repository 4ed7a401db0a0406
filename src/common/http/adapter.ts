import { FastifyAdapter } from '@nestjs/platform-fastify';
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import type { Socket } from 'node:net';
import { setLocation, type KnownRoutes } from './routes.js';
import {
  refuseExpectations,
  useJsonBodies,
  boundPipelining,
  closeAfterUnreadBody,
  paceBodies,
} from './request-body.js';
import { SystemClock } from '../clock.js';
import { UserPace } from '../user-pace.js';
import { limitBodyTime } from './body-time.js';
import { beginRequest, requestIdOf, useRequestContext } from './request-context.js';

/** The limit of routes that take no body. Clients may still send `{}`. */
const NO_BODY_LIMIT = 16 * 1024;
/**
 * How much a rejected client may still send, so that it can read the answer. The data is discarded without being
 * parsed.
 */
const UNREAD_BODY_BYTES = 32 * 2 ** 20;
/** How many bodies of the largest size a user may send at once, and how many seconds each further one takes. */
const BODIES_AT_ONCE = 2;
const SECONDS_OF_LARGEST_BODY = 1;
const MAX_HEADERS = 100;
/**
 * A connection that has not sent a complete request head by then is closed. Checked every few seconds. Milliseconds.
 */
const HEAD_LIMIT_MS = 15_000;
const BODY_LIMIT_MS = 60_000;
/** What Node's parser calls a request that takes too long. */
const LATE_BODY = Object.assign(new Error('late'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' });
const CHECK_INTERVAL_MS = 5_000;
/** Longer than the idle time-out of common proxies and load balancers, so that they close first. */
const KEEP_ALIVE_MS = 72_000;
const MAX_REQUESTS_PER_CONNECTION = 10_000;

/**
 * Configures Fastify: JSON bodies only, HEAD for every GET, and the `detail` envelope also for errors before a route is
 * found.
 */
export function createHttpAdapter(options: {
  routes: KnownRoutes;
  bodyLimitBytes: number;
  maxConnections: number;
  /** The service's own address, as the prefix of `Location`. May be empty. */
  publicUrl: string;
  /** If set, the only paths that are served. All others answer 404, even if a route is registered. */
  onlyPaths?: readonly string[];
}): FastifyAdapter {
  const adapter = new FastifyAdapter({
    bodyLimit: options.bodyLimitBytes,
    exposeHeadRoutes: true,
    forceCloseConnections: true,
    // See limitBodyTime.
    requestTimeout: 0,
    keepAliveTimeout: KEEP_ALIVE_MS,
    maxRequestsPerSocket: MAX_REQUESTS_PER_CONNECTION,
    http: {
      // Node would answer without a body; requireHost answers with the envelope.
      requireHostHeader: false,
      headersTimeout: HEAD_LIMIT_MS,
      connectionsCheckingInterval: CHECK_INTERVAL_MS,
    },
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
  fastify.server.maxConnections = options.maxConnections;
  options.routes.observe(fastify);
  fastify.addHook('onRoute', (route) => {
    if (!route.config?.takesBody) route.bodyLimit = Math.min(NO_BODY_LIMIT, options.bodyLimitBytes);
  });
  // First, before any other hook runs.
  boundPipelining(fastify);
  useRequestContext(fastify);
  closeAfterUnreadBody(fastify, Math.max(options.bodyLimitBytes, UNREAD_BODY_BYTES));
  fastify.addHook('onRequest', requireHost);
  limitBodyTime(fastify, BODY_LIMIT_MS, (socket) => answerRaw(LATE_BODY, socket));
  refuseExpectations(fastify);
  fastify.addHook('onRequest', boundHeaders);
  fastify.addHook('onRequest', lowerCaseId);
  const bytesPerSecond = options.bodyLimitBytes / SECONDS_OF_LARGEST_BODY;
  const rate = { bytesPerSecond, burst: BODIES_AT_ONCE * options.bodyLimitBytes };
  paceBodies(fastify, new UserPace(new SystemClock(), rate));
  useJsonBodies(fastify);
  setLocation(fastify, options.publicUrl);
  const { onlyPaths } = options;
  if (onlyPaths) {
    fastify.addHook('onRequest', (request, reply, done) => {
      if (onlyPaths.includes(request.url.split('?', 1)[0] ?? '')) done();
      else void reply.code(404).send({ detail: 'Not found' });
    });
  }
  return adapter;
}

/** HTTP/1.1 requires exactly one Host header (RFC 9112, section 3.2). */
function requireHost(request: FastifyRequest, reply: FastifyReply, done: () => void): void {
  const { headers, rawHeaders, httpVersion } = request.raw;
  const isHost = (name: string, index: number): boolean =>
    index % 2 === 0 && name.length === 4 && name.toLowerCase() === 'host';
  if (rawHeaders.filter(isHost).length > 1) {
    void reply.code(400).send({ detail: 'There is more than one Host header' });
  } else if (headers.host !== undefined || httpVersion === '1.0') done();
  else void reply.code(400).send({ detail: 'The Host header is missing' });
}

/** Clients may write ids in any case. Converts them to lower case for everything that follows. */
function lowerCaseId(request: FastifyRequest, _reply: FastifyReply, done: () => void): void {
  const params = request.params as { id?: string };
  if (params.id !== undefined) params.id = params.id.toLowerCase();
  done();
}

/** Limits the number of headers. Node's parser limits their size. */
function boundHeaders(request: FastifyRequest, reply: FastifyReply, done: () => void): void {
  if (request.raw.rawHeaders.length <= MAX_HEADERS * 2) done();
  else void reply.code(431).send({ detail: `The request has more than ${MAX_HEADERS} headers` });
}

/** Answers errors of Node's HTTP parser directly on the socket, because there is no request. */
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
