import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { type Service, startService } from '../support/service.js';
import { eventually } from '../support/sessions.js';

/** All but two of them take a second each: longer than a few small requests on a busy machine. */
const LARGE_BODIES = 20;
const KIB = 1024;
const LIMIT = 64 * KIB;
/** With its envelope, about as large as a body may be. */
const AGENT = { name: 'a', provider: 'shell', model: 'shell/bash', system: 'x'.repeat(60 * KIB) };
const SMALL = { ...AGENT, system: 'x' };

let service: Service;
beforeAll(async () => {
  service = await startService({ env: { APP_ROLE: 'api', BODY_LIMIT: String(LIMIT) } });
});
afterAll(() => service.stop());

it.each([
  ['with a length', {}],
  ['in chunks', { chunked: true }],
])(
  'large bodies of one user %s wait for each other, and nobody else waits',
  async (_name, sending) => {
    const busy = await service.createUser();
    const other = await service.createUser();
    const raw = JSON.stringify(AGENT);
    const headers = { 'content-type': 'application/json' };
    let answered = 0;
    const large = Array.from({ length: LARGE_BODIES }, async () => {
      const { status } = await busy.http.post('/agents', undefined, { raw, headers, ...sending });
      answered += 1;
      return status;
    });
    await eventually(() => answered > 0, 'the first answer');
    // What is not held back is answered by now.
    await delay(500);
    expect(answered).toBeLessThan(large.length);
    expect((await other.http.post('/agents', AGENT)).status).toBe(201);
    expect((await busy.http.post('/agents', SMALL)).status).toBe(201);
    expect((await busy.http.get('/agents?limit=1')).status).toBe(200);
    expect(answered).toBeLessThan(large.length);
    expect(new Set(await Promise.all(large))).toEqual(new Set([201]));
  },
);

it('a body that is too large is refused at once', async () => {
  const busy = await service.createUser();
  const large = Array.from({ length: 6 }, () => busy.http.post('/agents', AGENT));
  const tooLarge = { ...AGENT, system: 'x'.repeat(LIMIT) };
  expect((await busy.http.post('/agents', tooLarge)).status).toBe(413);
  expect((await busy.http.post('/agents', tooLarge, { chunked: true })).status).toBe(413);
  await Promise.all(large);
});
