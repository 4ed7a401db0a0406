import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import fastify, { type FastifyInstance } from 'fastify';
import { limitBodyTime } from './body-time.js';
import { useJsonBodies } from './request-body.js';

const LIMIT_MS = 100;
const PIECES = 10;

let app: FastifyInstance;
beforeEach(async () => {
  app = fastify({ forceCloseConnections: true });
  limitBodyTime(app, LIMIT_MS, (socket) => socket.end('HTTP/1.1 408 Late\r\n\r\n'));
  useJsonBodies(app);
  app.post('/whole', (request) => ({ received: request.body }));
  app.route({
    method: 'PUT',
    url: '/streamed',
    config: { streamsBody: true },
    handler: async ({ raw }) => ({ received: await text(raw) }),
  });
  app.route({
    method: 'POST',
    url: '/slow',
    handler: async ({ body }) => {
      await new Promise((resolve) => setTimeout(resolve, 3 * LIMIT_MS));
      return { received: body };
    },
  });
  await app.listen({ port: 0, host: '127.0.0.1' });
});
afterEach(() => app.close());

/** Sends a body in pieces that take several times the limit together, and returns the answer. */
async function send(head: string, piece: string): Promise<string> {
  const socket = connect((app.server.address() as AddressInfo).port, '127.0.0.1');
  socket.setNoDelay(true).on('error', () => undefined);
  await once(socket, 'connect');
  socket.write(
    `${head} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n` +
      `Content-Length: ${piece.length * PIECES}\r\n\r\n`,
  );
  let left = PIECES;
  const timer = setInterval(() => {
    if (left > 0 && socket.writable) socket.write(piece);
    left -= 1;
  }, LIMIT_MS / 2);
  const answer = await text(socket);
  clearInterval(timer);
  return answer;
}

describe('a body that takes longer than the limit', () => {
  it('is refused', async () => {
    expect(await send('POST /whole', '1')).toMatch(/^HTTP\/1\.1 408 /);
  });

  it('is read completely by a route that reads it as a stream', async () => {
    expect(await send('PUT /streamed', 'ab')).toContain(`{"received":"${'ab'.repeat(PIECES)}"}`);
  });
});

it('does not limit how long the handler takes after the body has arrived', async () => {
  const { port } = app.server.address() as AddressInfo;
  const response = await fetch(`http://127.0.0.1:${port}/slow`, {
    method: 'POST',
    body: '{"a":1}',
    headers: { 'content-type': 'application/json' },
  });
  expect(await response.json()).toEqual({ received: { a: 1 } });
});
