import type { FastifyInstance } from 'fastify';
import type { Socket } from 'node:net';
import { hasUnreadBody } from './request-body.js';

/** How long a client may take to read the answer before its connection is closed. */
const LINGER_MS = 5_000;

/**
 * Limits how long the body of a request may take to arrive. Node's own limit, `requestTimeout`, would also end bodies
 * that a route reads as a stream. Those may take long, and their handlers end them when nothing arrives any more.
 * @param answer sends the answer on the connection of a request that took too long
 */
export function limitBodyTime(
  fastify: FastifyInstance,
  limitMs: number,
  answer: (socket: Socket) => void,
): void {
  fastify.addHook('onRequest', (request, _reply, done) => {
    const { raw, routeOptions } = request;
    if (!routeOptions.config.streamsBody && hasUnreadBody(raw)) {
      const { socket } = raw;
      const timer = setTimeout(() => {
        answer(socket);
        // The client may go on sending, and only then read.
        const close = setTimeout(() => socket.destroy(), LINGER_MS).unref();
        socket.once('close', () => clearTimeout(close));
      }, limitMs);
      const arrived = (): void => clearTimeout(timer);
      // Requests that are injected, not received, have no `close`.
      raw.once('end', arrived).once('close', arrived);
    }
    done();
  });
}
