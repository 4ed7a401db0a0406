import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { randomUUID } from 'node:crypto';
import { ask } from '../faults/http.js';
import { query, type Service, startService, type TestUser } from '../support/service.js';

const TOO_MUCH = { 'idempotency-key': 'x'.repeat(256) };

describe('Idempotency-Key', () => {
  let service: Service;
  let agentId: string;
  let user: TestUser;

  beforeAll(async () => {
    // Nobody runs the turns: what is counted stays as it is.
    service = await startService({ env: { APP_ROLE: 'api' } });
  });
  afterAll(async () => {
    await service?.stop();
  });
  beforeEach(async () => {
    user = await service.createUser({ sessionLimit: 3 });
    agentId = await makeAgent(user);
  });

  async function makeAgent({ token }: TestUser): Promise<string> {
    const body = { name: 'a', provider: 'shell', model: 'shell/bash' };
    const answer = await ask(`${service.url}/agents`, { method: 'POST', token, body });
    return String(answer.body['id']);
  }

  const post = (
    key: string | undefined,
    body: object = { agent_id: agentId, prompt: 'exit 0' },
    path = '/sessions',
    token = user.token,
  ) =>
    ask(service.url + path, {
      method: 'POST',
      token,
      body,
      headers: key === undefined ? {} : { 'idempotency-key': key },
    });
  const sessions = async (): Promise<unknown[]> =>
    (await ask(`${service.url}/sessions`, { token: user.token })).body['data'] as unknown[];

  test('gives a retry the first answer, and makes one session', async () => {
    const key = randomUUID();
    const first = await post(key);
    expect(first.status).toBe(202);
    const again = await post(key, { prompt: 'exit 0', agent_id: agentId });
    expect([again.status, again.text]).toEqual([202, first.text]);
    expect(await sessions()).toHaveLength(1);
  });

  test('gives the first answer also when it would be refused by now', async () => {
    const key = randomUUID();
    const first = await post(key);
    await ask(`${service.url}/agents/${agentId}/archive`, { method: 'POST', token: user.token });
    expect((await post(key)).text).toBe(first.text);
    expect((await post(randomUUID())).status).toBe(409);
  });

  test('has no effect on a request with an invalid session id', async () => {
    for (const id of ['%00', 'none', randomUUID()]) {
      const { status, body } = await post(randomUUID(), { prompt: 'x' }, `/sessions/${id}/prompt`);
      expect([id, status, body]).toEqual([id, 404, { detail: 'Session not found' }]);
    }
  });

  test('with another body is a 422 that says so', async () => {
    const key = randomUUID();
    await post(key);
    const other = await post(key, { agent_id: agentId, prompt: 'exit 1' });
    expect(other).toMatchObject({
      status: 422,
      body: { detail: 'The Idempotency-Key was used before with another request body' },
    });
    expect(await sessions()).toHaveLength(1);
  });

  test('of requests at the same time makes one session, and all get its id', async () => {
    const key = randomUUID();
    const answers = await Promise.all(Array.from({ length: 12 }, () => post(key)));
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect(answers[0]?.status).toBe(202);
    expect(await sessions()).toHaveLength(1);
  });

  test.each([
    ['/agents', { name: 'b', provider: 'shell', model: 'shell/bash', metadata: { a: '1' } }],
    ['/environments', { name: 'e', env_vars: { A: 'secret' } }],
  ])('on %s gives the first answer, and creates one', async (path, body) => {
    const key = randomUUID();
    const list = async (): Promise<unknown[]> =>
      (await ask(service.url + path, { token: user.token })).body['data'] as unknown[];
    const before = (await list()).length;
    const answers = await Promise.all(Array.from({ length: 8 }, () => post(key, body, path)));
    const [first] = answers;
    expect(first?.status).toBe(201);
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect(await list()).toHaveLength(before + 1);

    // Also when the resource has changed since.
    const id = String(first?.body['id']);
    await ask(`${service.url}${path}/${id}`, {
      method: 'PUT',
      token: user.token,
      body: { version: 1, name: 'changed' },
    });
    await ask(`${service.url}${path}/${id}/archive`, { method: 'POST', token: user.token });
    expect((await post(key, body, path)).text).toBe(first?.text);

    const other = await post(key, { ...body, name: 'other' }, path);
    expect([other.status, other.body['detail']]).toEqual([
      422,
      'The Idempotency-Key was used before with another request body',
    ]);
    // What is refused leaves the key free.
    const free = randomUUID();
    expect((await post(free, { ...body, name: 5 }, path)).status).toBe(422);
    expect((await post(free, body, path)).status).toBe(201);
    expect((await post(TOO_MUCH['idempotency-key'], body, path)).status).toBe(400);
  });

  test('belongs to a user and a route', async () => {
    const key = randomUUID();
    const first = await post(key);
    const other = await service.createUser();
    const body = { agent_id: await makeAgent(other), prompt: 'exit 0' };
    const theirs = await post(key, body, '/sessions', other.token);
    expect(theirs.status).toBe(202);
    expect(theirs.body['id']).not.toBe(first.body['id']);
  });

  test('of a refused request may be used again', async () => {
    const key = randomUUID();
    for (let count = 0; count < 3; count += 1) await post(undefined);
    expect((await post(key)).status).toBe(429);
    const [one] = (await sessions()) as { id: string }[];
    await post(undefined, {}, `/sessions/${one?.id}/terminate`);
    expect((await post(key)).status).toBe(202);
  });

  test('is forgotten after a day', async () => {
    const key = randomUUID();
    const first = await post(key);
    await query(
      service.databaseUrl,
      `UPDATE idempotency_keys SET created_at = now() - interval '24 hours' WHERE key = $1`,
      [key],
    );
    const later = await post(key, { agent_id: agentId, prompt: 'exit 1' });
    expect(later.status).toBe(202);
    expect(later.body['id']).not.toBe(first.body['id']);
  });

  test('makes a prompt queue one turn', async () => {
    const { body } = await post(undefined);
    const id = String(body['id']);
    // As its worker would have left it.
    await query(
      service.databaseUrl,
      `WITH s AS (UPDATE sessions SET status = 'completed' WHERE id = $1),
         b AS (INSERT INTO sandboxes (session_id, driver, host, state) VALUES ($1, 'local', 'elsewhere', 'idle'))
       UPDATE turns SET status = 'completed' WHERE session_id = $1`,
      [id],
    );
    const key = randomUUID();
    const prompt = (text: string) => post(key, { prompt: text }, `/sessions/${id}/prompt`);
    const answers = await Promise.all(Array.from({ length: 6 }, () => prompt('exit 0')));
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect(answers[0]).toMatchObject({ status: 202, body: { id, status: 'pending' } });
    expect((await prompt('exit 0')).text).toBe(answers[0]?.text);
    expect((await prompt('exit 1')).status).toBe(422);
    const turns = await ask(`${service.url}/sessions/${id}/turns`, { token: user.token });
    expect(turns.body['data']).toHaveLength(2);
  });

  test.each([
    ['empty', { 'idempotency-key': '' }],
    ['too long', TOO_MUCH],
    ['blank inside', { 'idempotency-key': 'a b' }],
    ['not ASCII', { 'idempotency-key': 'a\u00e4' }],
  ])('that is %s is a 400', async (_what, headers) => {
    const answer = await ask(`${service.url}/sessions`, {
      method: 'POST',
      token: user.token,
      body: { agent_id: agentId, prompt: 'exit 0' },
      headers,
    });
    expect(answer).toMatchObject({
      status: 400,
      body: { detail: 'Idempotency-Key must be 1 to 255 visible ASCII characters' },
    });
    expect(await sessions()).toHaveLength(0);
  });
});
