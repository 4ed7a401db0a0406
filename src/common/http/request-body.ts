import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { IncomingMessage } from 'node:http';
import { pipeline, Transform } from 'node:stream';
import { callbackify } from 'node:util';
import type { OwnedRequest } from '../request-decorators.js';
import { jsonExcess } from '../storable.js';
import type { UserPace } from '../user-pace.js';
import type { Socket } from 'node:net';

/** The only expectation that RFC 9110 defines (section 10.1.1). Node answers it itself. */
const KNOWN = '100-continue';

/** Answers unknown expectations with 417 and an error body. Node's own answer would have no body. */
export function refuseExpectations(fastify: FastifyInstance): void {
  const { server } = fastify;
  server.on('checkExpectation', (request, response) => server.emit('request', request, response));
  fastify.addHook('onRequest', (request, reply, done) => {
    const { expect } = request.headers;
    // HTTP/1.0 does not define this header.
    const isMet = expect === undefined || expect.toLowerCase() === KNOWN;
    if (isMet || request.raw.httpVersion === '1.0') done();
    else void reply.code(417).send({ detail: `Unknown expectation: only ${KNOWN} is supported` });
  });
}

/** How long a rejected client may keep sending before its connection is closed. */
const LINGER_MS = 5_000;

/**
 * Ends the connection of a request that is answered before its body was read. Closing at once would reset it, and a
 * client that is still sending would never see the answer (RFC 9112, section 9.6). So it sends the answer and the end
 * of the stream first, and then discards what still arrives, up to `maxBytes` and a few seconds.
 */
export function closeAfterUnreadBody(fastify: FastifyInstance, maxBytes: number): void {
  fastify.addHook('onSend', (request, reply, payload, done) => {
    if (hasUnreadBody(request.raw)) {
      void reply.header('connection', 'close');
      lingerAtEnd(request.raw, maxBytes);
    }
    done(null, payload);
  });
}

/** Whether the request has a body that has not been read to its end. */
export function hasUnreadBody(request: IncomingMessage): boolean {
  const { headers } = request;
  const hasBody =
    headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
  return hasBody && !request.readableEnded;
}

/** Replaces Node's own handling of a connection's end after the last answer. */
function lingerAtEnd(request: IncomingMessage, maxBytes: number): void {
  const { socket } = request;
  const destroy = (): void => void socket.destroy();
  socket.destroySoon = () => {
    socket.end();
    if (request.readableEnded || request.destroyed) {
      socket.once('finish', destroy);
      return;
    }
    const timer = setTimeout(destroy, LINGER_MS).unref();
    socket.once('close', () => clearTimeout(timer));
    let discarded = 0;
    request.on('data', (chunk: Buffer) => {
      discarded += chunk.length;
      if (discarded > maxBytes) destroy();
    });
    // The client has sent everything, so closing does not reset the connection any more.
    request.once('end', () => {
      if (socket.writableFinished) destroy();
      else socket.once('finish', destroy);
    });
    request.resume();
  };
}

/**
 * Stands in for a body that could not be read, instead of failing the request at once. On routes that take a body, the
 * validation pipe turns it into an error status; other routes ignore it.
 */
export class UnreadableBody {
  constructor(
    readonly status: 400 | 415,
    readonly detail: string,
  ) {}
}

/** Far more than any resource needs, and far below the depth at which recursive code overflows the stack. */
const LIMITS = { depth: 64, values: 20_000 };

/** The content type that bodies get that are read as streams, so that no parser buffers them. */
const STREAMED = 'application/x-streamed-body';

/**
 * Replaces Fastify's parsers: accepts only JSON, treats an empty body as none, and keeps keys such as `__proto__` as
 * plain data, which the whitelist removes later. Everything else becomes an {@link UnreadableBody}.
 */
export function useJsonBodies(fastify: FastifyInstance): void {
  fastify.removeAllContentTypeParsers();
  fastify.addHook('onRequest', (request, _reply, done) => {
    const { headers } = request.raw;
    if (request.routeOptions.config.streamsBody) headers['content-type'] = STREAMED;
    // Other routes treat it as an unknown type.
    else if (headers['content-type']?.startsWith(STREAMED)) delete headers['content-type'];
    done();
  });
  fastify.addContentTypeParser(STREAMED, (_request, body, done) => done(null, body));
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

/** Bodies up to this size are read at once, however much the user has sent. Bytes. */
const SMALL_BODY_BYTES = 16 * 1024;

/**
 * Reads the large bodies of one user no faster than the pace, so that what parsing and storing them takes is spread over
 * time. Counts what arrives and not what is announced. A user's other requests do not wait.
 */
export function paceBodies(fastify: FastifyInstance, pace: UserPace): void {
  fastify.addHook('preParsing', (request: FastifyRequest & OwnedRequest, reply, payload, done) => {
    const { owner, raw } = request;
    // Reading it here would take it away from its handler, which reads no faster than it can store.
    if (request.routeOptions.config.streamsBody) return done();
    const isSmall = Number(raw.headers['content-length'] ?? Infinity) <= SMALL_BODY_BYTES;
    if (!owner || isSmall) return done();
    const paced = pacedBody(pace, owner.userId, () => reply.sent);
    pipeline(payload, paced, () => undefined);
    done(null, paced);
  });
}

/**
 * A stream for a body to pass through. Pausing the request itself would not be enough: it may have been received
 * completely before it is read, and then it ends although it is paused.
 * @param isAnswered whether the body is only discarded, which is not slowed down
 */
function pacedBody(pace: UserPace, userId: string, isAnswered: () => boolean): Transform {
  return new Transform({
    transform: callbackify(
      async (chunk: Buffer, _encoding: string): Promise<Buffer | undefined> => {
        if (isAnswered()) return undefined;
        pace.count(userId, chunk.length);
        await pace.ready(userId);
        return chunk;
      },
    ),
  });
}

const strictUtf8 = new TextDecoder('utf-8', { fatal: true });

/** @returns the parsed value, `undefined` for an empty body, or why it cannot be read. */
export function parseJson(body: Buffer): unknown {
  if (body.length === 0) return undefined;
  const excess = jsonExcess(body, LIMITS);
  if (excess !== undefined) {
    return new UnreadableBody(400, `Invalid JSON in the request body: ${excess}`);
  }
  try {
    return JSON.parse(strictUtf8.decode(body));
  } catch {
    return new UnreadableBody(400, 'Invalid JSON in the request body');
  }
}

/** The most concurrent requests of one connection. Known clients send one at a time. */
const MAX_PIPELINED = 16;

/**
 * Closes connections that pipeline too many requests. Node passes on everything that a client has sent at once, so one
 * small packet could start hundreds of requests that continue after the client has left.
 */
export function boundPipelining(fastify: FastifyInstance): void {
  const underWay = new WeakMap<Socket, number>();
  const change = (socket: Socket, by: number): number => {
    const count = (underWay.get(socket) ?? 0) + by;
    underWay.set(socket, count);
    return count;
  };
  fastify.addHook('onRequest', (request, reply, done) => {
    const { socket } = request.raw;
    if (socket.destroyed || change(socket, 1) > MAX_PIPELINED) {
      reply.hijack();
      socket.destroy();
      return;
    }
    reply.raw.once('close', () => change(socket, -1));
    done();
  });
}
