import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { registeredRoutes } from '../support/app-routes.js';
import { HttpClient } from '../support/http-client.js';
import { type Service, startService } from '../support/service.js';

const NOWHERE = '00000000-0000-4000-8000-000000000000';
/** A decision for each: nothing becomes open by itself. */
const OPEN = new Set([
  'GET /healthz',
  'GET /readyz',
  'GET /openapi.json',
  'GET /openapi-3.0.json',
  'GET /docs',
  // Signing in and out; each demands the console's own page.
  'GET /console/session',
  'POST /console/session',
  'DELETE /console/session',
]);
/** Signing in or out needs more than a request without anything. */
const SIGNING = new Set(['POST /console/session', 'DELETE /console/session']);

let service: Service;
let routes: string[];
beforeAll(async () => {
  service = await startService();
  routes = await registeredRoutes(service);
});
afterAll(() => service.stop());

/**
 * What anybody may read: the open ones, and the files that the documentation's page and the console are made of. HEAD is
 * open where GET is.
 */
const isOpen = (route: string) => {
  const read = route.replace(/^HEAD /, 'GET ');
  return OPEN.has(read) || read.startsWith('GET /docs/') || /^GET \/console(\/|$)/.test(read);
};

it('knows all routes', () => {
  for (const route of [
    'POST /agents',
    'GET /agents',
    'GET /agents/:id',
    'PUT /agents/:id',
    'POST /agents/:id/archive',
    'GET /agents/:id/versions',
    'POST /environments',
    'GET /environments',
    'GET /environments/:id',
    'PUT /environments/:id',
    'POST /environments/:id/archive',
    'DELETE /environments/:id/delete',
    'GET /environments/:id/versions',
    'GET /healthz',
  ]) {
    expect(routes).toContain(route);
  }
});

it('guards every one that is not open', async () => {
  const nobody = new HttpClient(service.url);
  const guarded = routes.filter((route) => !isOpen(route));
  expect(guarded.length).toBeGreaterThanOrEqual(13);
  for (const route of guarded) {
    const [method = '', url = ''] = route.split(' ');
    const answer = await nobody.send(method, url.replaceAll(/:\w+/g, NOWHERE));
    expect([route, answer.status, answer.body]).toEqual([
      route,
      401,
      method === 'HEAD' ? undefined : { detail: 'Missing or invalid access token' },
    ]);
  }
});

it('opens the open ones', async () => {
  const nobody = new HttpClient(service.url);
  for (const route of routes.filter((known) => OPEN.has(known) && !SIGNING.has(known))) {
    expect([route, (await nobody.get(route.split(' ')[1] ?? '')).status]).toEqual([route, 200]);
  }
});
