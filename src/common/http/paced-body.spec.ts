import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { fastify, type FastifyInstance, type FastifyRequest } from 'fastify';
import type { OwnedRequest } from '../request-decorators.js';
import type { UserPace } from '../user-pace.js';
import { paceBodies, useJsonBodies } from './request-body.js';

/** Above the size of small bodies, and small enough to be received in one piece. */
const BODY = JSON.stringify({ text: 'x'.repeat(20_000) });

let app: FastifyInstance;
let url: string;
let allowed: PromiseWithResolvers<void>;
let counted: number;
let arrived: PromiseWithResolvers<void>;

beforeEach(async () => {
  allowed = Promise.withResolvers();
  counted = 0;
  arrived = Promise.withResolvers();
  app = fastify();
  useJsonBodies(app);
  app.addHook('onRequest', async (request: FastifyRequest & OwnedRequest) => {
    request.owner = { userId: 'u', tokenId: 't' } as NonNullable<OwnedRequest['owner']>;
    // The body has been received completely before anybody reads it.
    await delay(50);
  });
  const pace: Pick<UserPace, 'count' | 'isReady' | 'ready'> = {
    count: (_userId, bytes) => {
      counted += bytes;
      arrived.resolve();
    },
    isReady: () => false,
    ready: () => allowed.promise,
  };
  paceBodies(app, pace as UserPace);
  app.post('/', (request) => ({ length: (request.body as { text: string }).text.length }));
  url = await app.listen({ port: 0, host: '127.0.0.1' });
});
afterEach(() => app.close());

const post = (body: string) =>
  fetch(url, { method: 'POST', body, headers: { 'content-type': 'application/json' } });

test('a body that was received before its turn waits for it', async () => {
  let isAnswered = false;
  const answer = post(BODY).then((response) => {
    isAnswered = true;
    return response.json();
  });
  await arrived.promise;
  await delay(50);
  expect(isAnswered).toBe(false);
  allowed.resolve();
  expect(await answer).toEqual({ length: 20_000 });
  expect(counted).toBe(BODY.length);
});

test('a small body does not wait', async () => {
  expect(await (await post('{"text":"x"}')).json()).toEqual({ length: 1 });
  expect(counted).toBe(0);
});
