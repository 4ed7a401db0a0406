import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { registeredRoutes } from '../support/app-routes.js';
import { auditLines } from '../support/audit-lines.js';
import { type CliResult, runCli } from '../support/cli.js';
import { HttpClient } from '../support/http-client.js';
import { query, type Service } from '../support/service.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';

/** How many turns run at a time. */
const SLOTS = 2;

let service: Service;
let operator: HttpClient;
let sessions: SessionsOf;
let cli: (...args: string[]) => Promise<CliResult>;
beforeAll(async () => {
  service = await startSessionService({ WORKER_CONCURRENCY: String(SLOTS) });
  sessions = new SessionsOf(service, service);
  cli = (...args) => runCli(args, { DATABASE_URL: service.databaseUrl, DATA_DIR: service.dataDir });
  await cli('user', 'create', 'olga', '--operator');
  const { json } = await cli('token', 'create', '--user', 'olga', '--json');
  operator = new HttpClient(service.url, json.token as string);
});
afterAll(async () => {
  await leaveNothing(service, [sessions]);
  await service.stop();
});

const JSON_TYPE = { headers: { 'content-type': 'application/json' } };

/** The audit lines of an operator's action, once there is one. */
async function audited(action: string) {
  const lines = () => auditLines(service).filter((line) => line.action === action);
  await eventually(() => lines().length > 0, `an audit line of ${action}`);
  return lines();
}

describe('the routes for operators', () => {
  it('do not exist for others, whatever they send', async () => {
    const routes = (await registeredRoutes(service)).filter((route) => route.includes('/operator'));
    expect(routes.length).toBeGreaterThanOrEqual(9);
    const { http } = service;
    const nowhere = await http.get('/no/such/path');
    expect(nowhere.status).toBe(404);
    for (const route of routes) {
      const [method = '', path = ''] = route.split(' ');
      const answer = await http.send(method, path.replaceAll(/:\w+/g, randomUUID()), {
        name: 'mallory',
      });
      expect([route, answer.status]).toEqual([route, 404]);
      if (method !== 'HEAD') expect(answer.body).toEqual(nowhere.body);
    }
    const users = await query(service.databaseUrl, `SELECT 1 FROM users WHERE name = 'mallory'`);
    expect(users).toEqual([]);
  });

  it('end within seconds for somebody who is no operator any more', async () => {
    await cli('user', 'create', 'past', '--operator');
    const { json } = await cli('token', 'create', '--user', 'past', '--json');
    const past = new HttpClient(service.url, json.token as string);
    expect((await past.get('/operator/users')).status).toBe(200);
    expect((await cli('user', 'operator', 'past', 'off')).stdout).toContain('is no operator');
    await eventually(async () => (await past.get('/operator/users')).status === 404, 'a refusal');
    expect((await past.get('/agents')).status).toBe(200);
    await cli('user', 'operator', 'past', 'on');
    await eventually(async () => (await past.get('/operator/users')).status === 200, 'the lists');
    await cli('token', 'revoke', json.id as string);
    await eventually(async () => (await past.get('/operator/users')).status === 401, 'a 401');
  });

  it('list in parts, and refuse a bad limit', async () => {
    const first = await operator.get('/operator/users?limit=1');
    expect(first.body).toMatchObject({ data: [{ operator: false }], has_more: true });
    const all = (await operator.get('/operator/users?limit=1000')).body;
    expect(all.has_more).toBe(false);
    expect(all.data).toContainEqual(expect.objectContaining({ name: 'olga', operator: true }));
    for (const list of ['workers', 'queue', 'sandboxes', 'users', 'tokens']) {
      expect([list, (await operator.get(`/operator/${list}`)).status]).toEqual([list, 200]);
      expect((await operator.get(`/operator/${list}?limit=0`)).status).toBe(400);
    }
    expect((await operator.get('/operator/sandboxes?state=odd')).status).toBe(400);
  });
});

describe('an operator', () => {
  it('creates users and tokens, and sees a secret only once', async () => {
    const user = await operator.post('/operator/users', { name: 'uma', session_limit: 3 });
    expect(user.status).toBe(201);
    expect(user.body).toMatchObject({ name: 'uma', session_limit: 3, operator: false });
    const again = await operator.post('/operator/users', { name: 'uma' });
    expect([again.status, again.body.detail]).toEqual([409, 'There already is a user "uma"']);
    const escalated = await operator.post('/operator/users', { name: 'eve', operator: true });
    expect(escalated.body.operator).toBe(false);

    const issued = await operator.post(`/operator/users/${user.body.id}/tokens`, {
      name: 'laptop',
      expires_in_days: 90,
    });
    expect(issued.status).toBe(201);
    expect(issued.headers['cache-control']).toBe('no-store');
    const { id } = issued.body;
    const token = String(issued.body['token']);
    const uma = new HttpClient(service.url, token);
    expect((await uma.get('/agents')).status).toBe(200);
    const days = (Date.parse(issued.body.expires_at as string) - Date.now()) / 86_400_000;
    expect(Math.round(days)).toBe(90);

    const listed = await operator.get('/operator/tokens?user=uma');
    expect(listed.body.data).toEqual([
      expect.objectContaining({ id, user: 'uma', name: 'laptop', revoked_at: null }),
    ]);
    expect(listed.text).not.toContain(token);

    const revoked = await operator.post(`/operator/tokens/${id}/revoke`);
    expect(revoked.status).toBe(200);
    await eventually(async () => (await uma.get('/agents')).status === 401, 'the token to end');

    expect(await audited('user create')).toContainEqual(
      expect.objectContaining({ operator: 'user olga', object: user.body.id, result: 'done' }),
    );
    expect(await audited('user create')).toContainEqual(
      expect.objectContaining({ operator: 'user olga', object: null, result: 'conflict' }),
    );
    expect(await audited('token create')).toContainEqual(
      expect.objectContaining({ operator: 'user olga', object: id, result: 'done' }),
    );
    expect(await audited('token revoke')).toContainEqual(
      expect.objectContaining({ operator: 'user olga', object: id, result: 'done' }),
    );
    expect(service.logs()).not.toContain(token);
  });

  it('is told what there is not', async () => {
    for (const id of ['x', randomUUID()]) {
      for (const path of [
        `/operator/users/${id}/tokens`,
        `/operator/tokens/${id}/revoke`,
        `/operator/sandboxes/${id}/destroy`,
        `/operator/sessions/${id}/terminate`,
      ]) {
        expect([path, (await operator.post(path, {}, JSON_TYPE)).status]).toEqual([path, 404]);
      }
    }
  });

  it('sees workers and sandboxes, and destroys only idle ones', async () => {
    const running = await sessions.create('echo begun; sleep 600');
    await sessions.reach(running, 'running');
    const { body: workers } = await operator.get('/operator/workers');
    const alive = workers.data.filter((worker) => worker.alive);
    expect(alive).toEqual([expect.objectContaining({ running: 1, slots: SLOTS, problem: null })]);
    const sandboxOf = async (session: string) => {
      const { body } = await operator.get('/operator/sandboxes');
      return body.data.find((each) => each.session_id === session);
    };
    await eventually(async () => (await sandboxOf(running))?.state === 'active', 'its sandbox');
    const used = await sandboxOf(running);
    const refused = await operator.post(`/operator/sandboxes/${used?.id}/destroy`);
    expect([refused.status, refused.body.detail]).toEqual([
      409,
      'Only idle sandboxes can be destroyed. Terminate the session that uses this one instead.',
    ]);
    expect((await operator.post(`/operator/sessions/${running}/terminate`)).status).toBe(200);
    expect((await sessions.get(running)).status).toBe('terminated');

    const completed = await sessions.completed();
    await eventually(async () => (await sandboxOf(completed))?.state === 'idle', 'it to rest');
    const idle = await sandboxOf(completed);
    expect((await operator.post(`/operator/sandboxes/${idle?.id}/destroy`)).status).toBe(200);
    await eventually(async () => (await sandboxOf(completed)) === undefined, 'it to be gone');
    const prompted = await sessions.http.post(`/sessions/${completed}/prompt`, { prompt: 'true' });
    expect(prompted.body.detail).toBe(
      'Session backend is no longer available; start a new session.',
    );
    expect(await audited('sandboxes destroy')).toContainEqual(
      expect.objectContaining({ operator: 'user olga', object: idle?.id, result: 'done' }),
    );
    expect(await audited('sessions terminate')).toContainEqual(
      expect.objectContaining({ operator: 'user olga', object: running, result: 'done' }),
    );
  });
});

describe('the queue', () => {
  it('shows who waits and for what, but no prompt', async () => {
    const crowd = new SessionsOf(service, await service.createUser());
    try {
      const ids: string[] = [];
      for (let index = 0; index < SLOTS + 2; index += 1) {
        ids.push(await crowd.create('sleep 600 # a-secret-of-the-user'));
      }
      const listed = async () => operator.get('/operator/queue');
      await eventually(async () => (await listed()).body.data.length === 2, 'two to wait');
      const { text, body } = await listed();
      expect(text).not.toContain('a-secret-of-the-user');
      expect(body.data.map(({ id }) => id)).toEqual(ids.slice(SLOTS));
      const members = ['id', 'progress', 'provider', 'turn', 'user', 'waiting_since'];
      for (const each of body.data) {
        expect(each.progress).toMatch(/^Waiting for a free slot/);
        expect(Object.keys(each).toSorted()).toEqual(members);
      }
    } finally {
      await crowd.clear();
    }
  });
});
