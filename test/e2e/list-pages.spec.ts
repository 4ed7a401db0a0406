import { readFile } from 'node:fs/promises';
import { Agent, type IncomingMessage, request } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { AnswerBody } from '../support/http-client.js';
import { query, type Service, startService, type TestUser } from '../support/service.js';

const NOBODYS = '11111111-1111-4111-8111-111111111111';
const SHELL = { name: 'a', provider: 'shell', model: 'shell/bash' };

let service: Service;
beforeAll(async () => {
  service = await startService({
    // The list that does not fit in this is the point of one test.
    env: { APP_ROLE: 'api', NODE_OPTIONS: '--max-old-space-size=192' },
  });
});
afterAll(() => service.stop());

const idsOf = (items: AnswerBody[]) => items.map(({ id }) => id);

/** Walks a list in pages. @param after what of an item is sent to go on. */
async function pagesOf(
  user: TestUser,
  path: string,
  limit: number,
  after: (item: AnswerBody) => unknown = ({ id }) => id,
): Promise<AnswerBody[][]> {
  const pages: AnswerBody[][] = [];
  const separator = path.includes('?') ? '&' : '?';
  let position = '';
  for (;;) {
    const { status, body } = await user.http.get(`${path}${separator}limit=${limit}${position}`);
    expect(status).toBe(200);
    pages.push(body.data);
    const last = body.data.at(-1);
    if (!body['has_more']) return pages;
    position = `&after=${String(last && after(last))}`;
  }
}

/** Makes sessions that nobody runs. */
async function sessionsOf(user: TestUser, count: number, prompts = 1): Promise<string> {
  const agentId = (await user.http.post('/agents', SHELL)).body.id;
  for (let made = 0; made < count; made += 1) {
    const { status } = await user.http.post('/sessions', { agent_id: agentId, prompt: 'true' });
    expect(status).toBe(202);
  }
  if (prompts > 1) {
    await query(
      service.databaseUrl,
      `INSERT INTO turns (session_id, turn_number, prompt, timeout)
       SELECT s.id, n, 'prompt ' || n, 60 FROM sessions s, generate_series(2, $2) n WHERE s.user_id = $1`,
      [user.userId, prompts],
    );
  }
  return agentId;
}

describe('pages', () => {
  it('of agents and environments make up the list, in its order', async () => {
    const user = await service.createUser();
    for (const [path, body] of [
      ['/agents', SHELL],
      ['/environments', { setup_script: 'true' }],
    ] as const) {
      for (let made = 0; made < 7; made += 1) await user.http.post(path, body);
      const { body: all } = await user.http.get(path);
      expect(Object.keys(all)).toEqual(['data']);
      const pages = await pagesOf(user, path, 3);
      expect(pages.map((page) => page.length)).toEqual([3, 3, 1]);
      expect(pages.flat()).toEqual(all.data);
      const exact = await user.http.get(`${path}?limit=7`);
      expect(exact.body).toEqual({ data: all.data, has_more: false });
      const rest = await user.http.get(`${path}?after=${String(all.data[4]?.id).toUpperCase()}`);
      expect(rest.body).toEqual({ data: all.data.slice(5), has_more: false });
      // Archived in the meantime, it still says where the list goes on.
      await user.http.post(`${path}/${all.data[2]?.id}/archive`);
      const on = await user.http.get(`${path}?limit=2&after=${all.data[2]?.id}`);
      expect(on.body).toEqual({ data: all.data.slice(3, 5), has_more: true });
    }
  });

  it('of rows that were made at the same moment skip none', async () => {
    const user = await service.createUser();
    for (let made = 0; made < 5; made += 1) await user.http.post('/environments', {});
    await query(
      service.databaseUrl,
      `UPDATE environments SET created_at = now() WHERE user_id = $1`,
      [user.userId],
    );
    const { body } = await user.http.get('/environments');
    expect((await pagesOf(user, '/environments', 2)).flat()).toEqual(body.data);
  });

  it('of versions go on below a version, those of turns behind one', async () => {
    const user = await service.createUser();
    for (const [path, change] of [
      ['/agents', (name: string) => ({ ...SHELL, name })],
      ['/environments', (name: string) => ({ name })],
    ] as const) {
      const { id } = (await user.http.post(path, change('1'))).body;
      for (const version of [1, 2, 3, 4]) {
        await user.http.put(`${path}/${id}`, { version, ...change(`${version + 1}`) });
      }
      const pages = await pagesOf(user, `${path}/${id}/versions`, 2, ({ version }) => version);
      expect(pages.map((page) => page.map(({ version }) => version))).toEqual([
        [5, 4],
        [3, 2],
        [1],
      ]);
      expect((await user.http.get(`${path}/${id}/versions?after=x`)).status).toBe(400);
    }
    await sessionsOf(user, 1, 5);
    const session = (await user.http.get('/sessions')).body.data[0]?.id ?? '';
    const turns = await pagesOf(user, `/sessions/${session}/turns`, 2);
    expect(turns.map((page) => page.map((turn) => turn['turn_number']))).toEqual([
      [1, 2],
      [3, 4],
      [5],
    ]);
    const all = await user.http.get(`/sessions/${session}/turns`);
    expect(all.body).toEqual({ data: turns.flat() });
  });

  it('of sessions can be of one state or of one agent', async () => {
    const user = await service.createUser();
    const [first, second] = [await sessionsOf(user, 3), await sessionsOf(user, 2)];
    await query(
      service.databaseUrl,
      `UPDATE sessions SET status = 'completed' WHERE id = (
        SELECT id FROM sessions WHERE agent_id = $1 ORDER BY created_at LIMIT 1)`,
      [first],
    );
    const list = async (search: string) => (await user.http.get(`/sessions?${search}`)).body;
    const all = (await list('')).data;
    const ofFirst = await list(`agent_id=${first}`);
    expect(ofFirst).toEqual({ data: all.filter((session) => session['agent_id'] === first) });
    expect((await list(`agent_id=${second}&status=pending&limit=1`))['has_more']).toBe(true);
    expect(idsOf((await list('status=completed')).data)).toHaveLength(1);
    expect((await list(`agent_id=${NOBODYS}`)).data).toEqual([]);
    expect((await list('agent_id=nonsense')).data).toEqual([]);
    const pages = await pagesOf(user, '/sessions?status=pending', 3);
    expect(pages.map((page) => page.length)).toEqual([3, 1]);
    const { status, body } = await user.http.get('/sessions?status=sleeping');
    expect([status, body.detail]).toEqual([400, expect.stringMatching(/^status must be one of /)]);
  });

  it('are refused where they cannot be told', async () => {
    const user = await service.createUser();
    const other = await service.createUser();
    const { id } = (await other.http.post('/agents', SHELL)).body;
    for (const limit of ['0', '1001', '-1', 'x', '1.5', '', '1&limit=2']) {
      const { status, body } = await user.http.get(`/agents?limit=${limit}`);
      expect([limit, status]).toEqual([limit, 400]);
      expect(body.detail).toBe('limit must be a whole number from 1 to 1000');
    }
    for (const after of ['x', '', NOBODYS, id]) {
      const { status, body } = await user.http.get(`/agents?after=${after}`);
      expect([after, status]).toEqual([after, 400]);
      expect(body.detail).toBe('after does not name an item of this list');
    }
    expect((await user.http.get('/agents?limit=1000&page=3&offset=x')).status).toBe(200);
  });
});

describe('large lists', () => {
  const AGENTS = 120;
  const TEXT_BYTES = 3 * 2 ** 20;

  it('are written in the memory of a page', async () => {
    const user = await service.createUser();
    await query(
      service.databaseUrl,
      `WITH made AS (
        INSERT INTO agents (id, user_id, name, provider, model, system, skills, mcp_servers, metadata, created_at)
        SELECT gen_random_uuid(), $1, 'a' || n, 'shell', 'shell/bash', repeat('ä', $3), '[]', '[]', '{}',
               now() - n * interval '1 second'
          FROM generate_series(1, $2) n RETURNING *)
       INSERT INTO agent_versions (agent_id, version, snapshot)
       SELECT id, 1, jsonb_build_object('system', system) FROM made`,
      [user.userId, AGENTS, TEXT_BYTES / 2],
    );
    const before = await memoryOf(service.pid);
    const { bytes, end } = await readSlowly(user.token, '/agents');
    expect(bytes).toBeGreaterThan(AGENTS * TEXT_BYTES);
    expect(end).toBe('null}]}');
    expect((await memoryOf(service.pid)) - before).toBeLessThan(200 * 2 ** 20);
    expect((await user.http.get('/agents?limit=2')).body.data.map(({ name }) => name)).toEqual([
      'a1',
      'a2',
    ]);
  });

  it('break off where they cannot be read on', async () => {
    const user = await service.createUser();
    await query(
      service.databaseUrl,
      `INSERT INTO sessions (user_id, agent_id, agent_version, provider, timeout, resources)
       SELECT $1, v.agent_id, 1, 'shell', 60, jsonb_build_array(repeat('x', 1000000))
         FROM (SELECT agent_id FROM agent_versions WHERE version = 1 LIMIT 1) v, generate_series(1, 900)`,
      [user.userId],
    );
    const read = readSlowly(user.token, '/sessions', {
      begun: async () => {
        await query(service.databaseUrl, `ALTER TABLE sessions RENAME COLUMN resources TO moved`);
      },
    });
    try {
      await expect(read).rejects.toThrow(/aborted|ECONNRESET|hang up/);
    } finally {
      await query(service.databaseUrl, `ALTER TABLE sessions RENAME COLUMN moved TO resources`);
    }
    expect((await service.http.get('/readyz')).status).toBe(200);
  });

  it('that nobody reads on leave nothing behind', async () => {
    const user = await service.createUser();
    await query(
      service.databaseUrl,
      `WITH made AS (
        INSERT INTO agents (id, user_id, name, provider, model, system, skills, mcp_servers, metadata)
        SELECT gen_random_uuid(), $1, 'a', 'shell', 'shell/bash', repeat('x', 2000000), '[]', '[]', '{}'
          FROM generate_series(1, 40) RETURNING *)
       INSERT INTO agent_versions (agent_id, version, snapshot)
       SELECT id, 1, jsonb_build_object('system', system) FROM made`,
      [user.userId],
    );
    // More than the budget of a user: were the places of those that hung up kept, the last one would wait for ever.
    for (let index = 0; index < 60; index += 1) await hangUp(user.token, '/agents');
    expect((await user.http.get('/agents?limit=1')).status).toBe(200);
  });

  it('leave nothing behind on the connection that carried them', async () => {
    const user = await service.createUser();
    for (let index = 0; index < 3; index += 1) {
      await user.http.post('/agents', { ...SHELL, system: 'x'.repeat(1_000_000) });
    }
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    try {
      for (let index = 0; index < 12; index += 1) {
        expect((await readSlowly(user.token, '/agents', { agent })).end).toBe('null}]}');
      }
      expect(Object.values(agent.freeSockets).flat()).toHaveLength(1);
    } finally {
      agent.destroy();
    }
    expect(service.logs()).not.toContain('MaxListenersExceededWarning');
  });
});

/** The most that a process has had resident. */
async function memoryOf(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmHWM:\s*(\d+) kB/m.exec(status)?.[1] ?? 0) * 1024;
}

/** Reads an answer without keeping it. @param begun called once, when it has begun. */
async function readSlowly(
  token: string,
  path: string,
  { begun = async () => undefined, agent }: { begun?: () => Promise<void>; agent?: Agent } = {},
): Promise<{ bytes: number; end: string }> {
  const headers = { authorization: `Bearer ${token}` };
  const incoming = await new Promise<IncomingMessage>((resolve, reject) => {
    const outgoing = request(`${service.url}${path}`, { headers, agent: agent ?? false }, resolve);
    outgoing.on('error', reject);
    outgoing.end();
  });
  let bytes = 0;
  let end = '';
  for await (const chunk of incoming as AsyncIterable<Buffer>) {
    if (bytes === 0) await begun();
    bytes += chunk.length;
    end = (end + chunk.subarray(-7).toString()).slice(-7);
  }
  return { bytes, end };
}

/** Takes the beginning of an answer and goes away. */
async function hangUp(token: string, path: string): Promise<void> {
  const headers = { authorization: `Bearer ${token}` };
  return new Promise((resolve, reject) => {
    const outgoing = request(`${service.url}${path}`, { headers, agent: false }, (incoming) => {
      incoming.once('data', () => outgoing.destroy());
      incoming.on('error', () => undefined);
      incoming.once('close', () => resolve());
    });
    outgoing.on('error', reject);
    outgoing.end();
  });
}
