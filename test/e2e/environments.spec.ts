import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Client } from 'pg';
import { untilBlocked } from '../support/locks.js';
import { query, type Service, startService } from '../support/service.js';

const MICROSECONDS = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$/;
const UUID_V4 = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const NOWHERE = '00000000-0000-4000-8000-000000000000';

let service: Service;
beforeAll(async () => {
  service = await startService();
});
afterAll(() => service.stop());

const post = (body: object = {}) => service.http.post('/environments', body);
const put = (id: string, body: object) => service.http.put(`/environments/${id}`, body);
const get = (id: string) => service.http.get(`/environments/${id}`);
const versions = (id: string) => service.http.get(`/environments/${id}/versions`);
const create = async (body: object = {}) => (await post(body)).body;

describe('creating', () => {
  it('needs nothing and has defaults', async () => {
    const { status, body } = await post();
    expect(status).toBe(201);
    expect(body).toEqual({
      id: expect.stringMatching(UUID_V4),
      type: 'environment',
      name: null,
      packages: [],
      env_var_keys: [],
      setup_script: '',
      networking: { type: 'unrestricted' },
      version: 1,
      created_at: expect.stringMatching(MICROSECONDS),
      updated_at: body.created_at,
      archived_at: null,
    });
    expect((await get(body.id)).body).toEqual({ ...body, build: null });
  });

  it('takes no body at all for an empty one', async () => {
    expect((await service.http.post('/environments')).status).toBe(201);
  });

  it('gives everything back in its one form, and of env_vars the sorted names', async () => {
    const body = await create({
      name: 'Everything',
      packages: [
        'jq',
        'npm:@scope/tool@5.9.3',
        'pip:requests',
        { manager: 'go', name: 'golang.org/x/tools/gopls', version: 'latest', extra: 1 },
      ],
      env_vars: { ZED: 'z', __proto__x: 'p', constructor: 'c', A: '' },
      setup_script: 'echo hi\n',
      networking: {
        type: 'limited',
        allowed_hosts: ['API.Example.com', '*.example.org', 'api.example.com'],
      },
      id: NOWHERE,
      version: 9,
    });
    expect(body).toMatchObject({
      name: 'Everything',
      packages: [
        { manager: 'apt', name: 'jq' },
        { manager: 'npm', name: '@scope/tool', version: '5.9.3' },
        { manager: 'pip', name: 'requests' },
        { manager: 'go', name: 'golang.org/x/tools/gopls', version: 'latest' },
      ],
      env_var_keys: ['A', 'ZED', '__proto__x', 'constructor'],
      setup_script: 'echo hi\n',
      networking: {
        type: 'limited',
        allowed_hosts: ['api.example.com', '*.example.org'],
        allow_package_managers: false,
        allow_mcp_servers: false,
      },
      version: 1,
    });
    expect(body).not.toHaveProperty('env_vars');
    expect(body.id).not.toBe(NOWHERE);
  });

  it('has microseconds that are not zeros', async () => {
    const stamps = await Promise.all(
      Array.from({ length: 20 }, async () => (await create()).created_at),
    );
    expect(stamps.filter((stamp) => !stamp.endsWith('000+00:00')).length).toBeGreaterThan(10);
    expect(new Set(stamps).size).toBeGreaterThan(10);
  });
});

describe('what is refused', () => {
  it.each<[string, object, [string, ...(string | number)[]][]]>([
    ['a number for a name', { name: 3 }, [['string_type', 'name']]],
    ['a name too long', { name: 'x'.repeat(256) }, [['string_too_long', 'name']]],
    ['null for packages', { packages: null }, [['list_type', 'packages']]],
    ['null for env_vars', { env_vars: null }, [['object_type', 'env_vars']]],
    ['null for setup_script', { setup_script: null }, [['string_type', 'setup_script']]],
    ['null for networking', { networking: null }, [['object_type', 'networking']]],
    ['a list for networking', { networking: [] }, [['object_type', 'networking']]],
    ['networking without a type', { networking: {} }, [['missing', 'networking', 'type']]],
    ['another type', { networking: { type: 'open' } }, [['enum', 'networking', 'type']]],
    [
      'wrong things in limited networking',
      { networking: { type: 'limited', allowed_hosts: 'x', allow_mcp_servers: 1 } },
      [
        ['list_type', 'networking', 'allowed_hosts'],
        ['bool_type', 'networking', 'allow_mcp_servers'],
      ],
    ],
    [
      'a host that is no text',
      { networking: { type: 'limited', allowed_hosts: ['a.example', 7] } },
      [['string_type', 'networking', 'allowed_hosts', 1]],
    ],
    [
      'hosts that are no names',
      {
        networking: {
          type: 'limited',
          allowed_hosts: [
            'https://a.example',
            'a.example:443',
            'a.example/x',
            '10.0.0.1',
            '*',
            'ok.example',
            '',
            '[::1]',
            'a.*.example',
          ],
        },
      },
      [0, 1, 2, 3, 4, 6, 7, 8].map((index) => [
        'host_pattern',
        'networking',
        'allowed_hosts',
        index,
      ]),
    ],
    [
      'packages of every wrong kind',
      {
        packages: [
          3,
          null,
          [],
          {},
          { manager: 'brew', name: 'x' },
          'brew:x',
          '',
          { manager: 'apt', name: '--y' },
          { manager: 'pip', name: 'a', version: 2 },
          'jq; rm -rf /',
        ],
      },
      [
        ['object_type', 'packages', 0],
        ['object_type', 'packages', 1],
        ['object_type', 'packages', 2],
        ['missing', 'packages', 3, 'manager'],
        ['missing', 'packages', 3, 'name'],
        ['enum', 'packages', 4, 'manager'],
        ['package', 'packages', 5],
        ['package', 'packages', 6],
        ['string_pattern_mismatch', 'packages', 7, 'name'],
        ['string_type', 'packages', 8, 'version'],
        ['package', 'packages', 9],
      ],
    ],
    [
      'too many packages',
      { packages: Array.from({ length: 257 }, () => 'jq') },
      [['too_long', 'packages']],
    ],
    [
      'env_vars of wrong types and names',
      { env_vars: { A: 1, B: null, 'C-D': 'x', '1E': 'x', OK: 'y' } },
      [
        ['string_pattern_mismatch', 'env_vars', 3],
        ['string_type', 'env_vars', 0],
        ['string_type', 'env_vars', 1],
        ['string_pattern_mismatch', 'env_vars', 2],
      ],
    ],
    [
      'names that only the service sets',
      {
        env_vars: {
          OK: 'x',
          HOME: '/',
          ANTHROPIC_BASE_URL: 'https://a.example',
          CODEX_HOME: '/x',
          SANDBOX_LAUNCH: 'x',
        },
      },
      [
        ['reserved_name', 'env_vars', 'HOME'],
        ['reserved_name', 'env_vars', 'ANTHROPIC_BASE_URL'],
        ['reserved_name', 'env_vars', 'CODEX_HOME'],
        ['reserved_name', 'env_vars', 'SANDBOX_LAUNCH'],
      ],
    ],
    [
      'versions that a manager cannot express',
      { packages: [{ manager: 'pip', name: 'a', version: '^1' }, 'cargo:a@1', 'pip:a@>=1,<2'] },
      [
        ['package_version', 'packages', 0, 'version'],
        ['package', 'packages', 1],
      ],
    ],
    ['a NUL', { setup_script: 'a\0b' }, [['string_unicode', 'setup_script']]],
  ])('%s', async (_name, body, expected) => {
    const answer = await post(body);
    expect(answer.status).toBe(422);
    const found = answer.body.detail.map(({ type, loc }) => [type, ...loc.slice(1)].join('.'));
    expect([...found].sort()).toEqual(expected.map((item) => item.join('.')).sort());
    for (const { loc, msg } of answer.body.detail) {
      expect(loc[0]).toBe('body');
      expect(typeof msg).toBe('string');
    }
  });

  it('never repeats a value', async () => {
    const secret = 'planted-4711';
    const answer = await post({
      env_vars: { A: { deep: secret }, 'B-': secret, [`C=${secret}`]: '', [secret]: 1 },
      setup_script: [secret],
      packages: [`${secret} `, { manager: secret, name: `${secret} ` }],
      networking: { type: 'limited', allowed_hosts: [`https://${secret}`] },
    });
    expect(answer.status).toBe(422);
    expect(answer.text).not.toContain(secret);
    const unstorable = await post({
      env_vars: { [secret]: '\0', [`${secret}\0`]: '' },
    });
    expect(unstorable.status).toBe(422);
    expect(unstorable.body.detail.map(({ type, loc }) => [type, ...loc])).toEqual([
      ['string_unicode', 'body', 'env_vars', 0],
      ['string_unicode', 'body', 'env_vars', 1],
    ]);
  });

  it('leaves an environment as it is when a change has a reserved name', async () => {
    const before = await create({ env_vars: { A: '1' } });
    const answer = await put(before.id, { version: 1, env_vars: { A: '2', HOME: '/tmp' } });
    expect(answer.body.detail).toEqual([
      { type: 'reserved_name', loc: ['body', 'env_vars', 'HOME'], msg: expect.any(String) },
    ]);
    expect((await get(before.id)).body).toEqual({ ...before, build: null });
  });
});

describe('reading', () => {
  it('lists active ones newest first, and an archived one only by its id', async () => {
    const user = await service.createUser();
    const ids: string[] = [];
    for (let index = 0; index < 3; index += 1)
      ids.unshift((await user.http.post('/environments', {})).body.id);
    await user.http.post(`/environments/${ids[1]}/archive`);
    const { status, body } = await user.http.get('/environments');
    expect(status).toBe(200);
    expect(body.data.map(({ id }) => id)).toEqual([ids[0], ids[2]]);
    expect((await user.http.get(`/environments/${ids[1]}`)).body.archived_at).toMatch(MICROSECONDS);
  });

  it.each(['x', NOWHERE, '%20', 'a'.repeat(300), NOWHERE.replaceAll('0', 'g')])(
    'knows no id %p',
    async (id) => {
      for (const answer of [
        await get(id),
        await put(id, { version: 1 }),
        await service.http.post(`/environments/${id}/archive`),
        await service.http.delete(`/environments/${id}/delete`),
        await versions(id),
      ]) {
        expect(answer.status).toBe(404);
        if (id.length < 256) expect(answer.body).toEqual({ detail: 'Environment not found' });
      }
    },
  );

  it("does not tell another user's from one that is not there", async () => {
    const { id } = await create({ name: 'mine' });
    const { http } = await service.createUser();
    for (const answer of [
      await http.get(`/environments/${id}`),
      await http.put(`/environments/${id}`, { version: 1, name: 'theirs' }),
      await http.post(`/environments/${id}/archive`),
      await http.delete(`/environments/${id}/delete`),
      await http.get(`/environments/${id}/versions`),
    ]) {
      expect([answer.status, answer.body]).toEqual([404, { detail: 'Environment not found' }]);
    }
    expect((await http.get('/environments')).body).toEqual({ data: [] });
    expect((await get(id)).body.name).toBe('mine');
  });
});

describe('changing', () => {
  it('leaves what is not submitted, replaces what is, and keeps every version', async () => {
    const first = await create({ name: 'a', env_vars: { A: '1', B: '2' }, packages: ['jq'] });
    const second = await put(first.id, { version: 1, env_vars: { B: '2', C: '3' } });
    expect(second.status).toBe(200);
    expect(second.body).toEqual({
      ...first,
      env_var_keys: ['B', 'C'],
      version: 2,
      updated_at: expect.stringMatching(MICROSECONDS),
    });
    expect(second.body.updated_at > first.updated_at).toBe(true);
    const third = await put(first.id, { version: 2, name: null, networking: { type: 'limited' } });
    expect(third.body).toMatchObject({ name: null, version: 3, env_var_keys: ['B', 'C'] });

    const history = await versions(first.id);
    expect(history.body).toEqual({
      // Each was created when it was written.
      data: [third.body, second.body, first].map((one) => ({ ...one, created_at: one.updated_at })),
    });
    expect((await get(first.id)).body).toEqual({ ...third.body, build: null });
  });

  it.each<[string, object]>([
    ['nothing', {}],
    ['the same name', { name: 'same' }],
    ['the same packages in the other form', { packages: [{ manager: 'apt', name: 'jq' }] }],
    ['the same variables in another order', { env_vars: { B: '2', A: '1' } }],
    [
      'the same hosts in another case',
      { networking: { type: 'limited', allowed_hosts: ['A.EXAMPLE'] } },
    ],
    [
      'defaults spelt out',
      { networking: { type: 'limited', allowed_hosts: ['a.example'], allow_mcp_servers: false } },
    ],
  ])('does not count as a change: %s', async (_name, change) => {
    const before = await create({
      name: 'same',
      packages: ['jq'],
      env_vars: { A: '1', B: '2' },
      networking: { type: 'limited', allowed_hosts: ['a.example'] },
    });
    const answer = await put(before.id, { version: 1, ...change });
    expect(answer.status).toBe(200);
    expect(answer.body).toEqual(before);
    expect((await versions(before.id)).body.data).toHaveLength(1);
  });

  it('sees that only the value of a variable changed', async () => {
    const { id } = await create({ env_vars: { A: '1' } });
    expect((await put(id, { version: 1, env_vars: { A: '2' } })).body.version).toBe(2);
    expect((await put(id, { version: 2, env_vars: {} })).body).toMatchObject({
      version: 3,
      env_var_keys: [],
    });
  });

  it.each<[string, object, string]>([
    ['without a version', { name: 'x' }, 'missing'],
    ['with null', { version: null }, 'int_type'],
    ['with a text', { version: '1' }, 'int_type'],
    ['with a fraction', { version: 1.5 }, 'int_type'],
  ])('is refused %s', async (_name, body, type) => {
    const { id } = await create();
    const answer = await put(id, body);
    expect(answer.status).toBe(422);
    expect(answer.body.detail).toEqual([
      { type, loc: ['body', 'version'], msg: expect.any(String) },
    ]);
  });

  it.each([0, 2, -1, 1e300])('is refused with the stale version %p', async (version) => {
    const { id } = await create();
    const answer = await put(id, { version, name: 'x' });
    expect(answer.status).toBe(409);
    expect(answer.body).toEqual({ detail: `Version mismatch: expected 1, got ${version}` });
  });

  it('lets exactly one of 30 win, without a gap', async () => {
    const { id } = await create();
    for (let version = 1; version <= 3; version += 1) {
      const answers = await Promise.all(
        Array.from({ length: 30 }, (_, index) => put(id, { version, name: `${version}-${index}` })),
      );
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
      for (const { status, body } of answers) {
        if (status === 200) expect(body.version).toBe(version + 1);
        else {
          expect(status).toBe(409);
          expect(body.detail).toBe(`Version mismatch: expected ${version + 1}, got ${version}`);
        }
      }
    }
    const history = (await versions(id)).body.data;
    expect(history.map(({ version }) => version)).toEqual([4, 3, 2, 1]);
    expect((await get(id)).body).toMatchObject({ ...history[0], created_at: expect.anything() });
  });
});

describe('archiving', () => {
  it('happens once, and nothing changes afterwards', async () => {
    const before = await create({ name: 'old' });
    const archived = await service.http.post(`/environments/${before.id}/archive`);
    expect(archived.status).toBe(200);
    expect(archived.body).toEqual({
      ...before,
      updated_at: archived.body.archived_at,
      archived_at: expect.stringMatching(MICROSECONDS),
    });
    expect(await service.http.post(`/environments/${before.id}/archive`)).toMatchObject({
      status: 409,
      body: { detail: 'Environment is already archived' },
    });
    for (const version of [1, 7]) {
      expect(await put(before.id, { version, name: 'new' })).toMatchObject({
        status: 409,
        body: { detail: 'Cannot update an archived environment' },
      });
    }
    expect((await versions(before.id)).body.data).toEqual([before]);
  });
});

describe('deleting', () => {
  it.each([false, true])('removes it with its history (archived: %p)', async (archived) => {
    const { id } = await create();
    if (archived) await service.http.post(`/environments/${id}/archive`);
    const answer = await service.http.delete(`/environments/${id}/delete`);
    expect([answer.status, answer.body]).toEqual([200, { detail: expect.any(String) }]);
    expect((await get(id)).status).toBe(404);
    expect((await service.http.delete(`/environments/${id}/delete`)).status).toBe(404);
    const left = await query(
      service.databaseUrl,
      'SELECT FROM environment_versions WHERE environment_id = $1',
      [id],
    );
    expect(left).toHaveLength(0);
  });

  it('is refused for ever once a session referenced it', async () => {
    const { id } = await create();
    await query(service.databaseUrl, 'UPDATE environments SET referenced = true WHERE id = $1', [
      id,
    ]);
    expect(await service.http.delete(`/environments/${id}/delete`)).toMatchObject({
      status: 409,
      body: { detail: 'Cannot delete environment with existing sessions' },
    });
    expect((await get(id)).status).toBe(200);
  });
});

describe('deleting while a session is being created', () => {
  /** What the creation of a session does in its transaction. */
  const REFERENCE = `UPDATE environments SET referenced = true
                      WHERE id = $1 AND user_id = $2 AND archived_at IS NULL RETURNING version`;

  it('waits for it and is refused', async () => {
    const { id } = await create();
    const session = new Client({ connectionString: service.databaseUrl });
    await session.connect();
    try {
      await session.query('BEGIN');
      expect((await session.query(REFERENCE, [id, service.userId])).rowCount).toBe(1);
      const deletion = service.http.delete(`/environments/${id}/delete`);
      await untilBlocked(service.databaseUrl);
      await session.query('COMMIT');
      expect(await deletion).toMatchObject({
        status: 409,
        body: { detail: 'Cannot delete environment with existing sessions' },
      });
    } finally {
      await session.end();
    }
  });

  it('goes on when the session comes to nothing', async () => {
    const { id } = await create();
    const session = new Client({ connectionString: service.databaseUrl });
    await session.connect();
    try {
      await session.query('BEGIN');
      await session.query(REFERENCE, [id, service.userId]);
      const deletion = service.http.delete(`/environments/${id}/delete`);
      await untilBlocked(service.databaseUrl);
      await session.query('ROLLBACK');
      expect((await deletion).status).toBe(200);
      expect((await session.query(REFERENCE, [id, service.userId])).rowCount).toBe(0);
    } finally {
      await session.end();
    }
  });
});

it('keeps no value of a variable readable in the database or the logs', async () => {
  const secret = 'planted-env-secret-9137';
  const { id } = await create({ env_vars: { KEY: secret } });
  await put(id, { version: 1, env_vars: { KEY: `${secret}-2` } });
  await put(id, { version: 9, env_vars: { KEY: `${secret}-3` } });
  for (const table of ['environments', 'environment_versions']) {
    const rows = await query<{ row: string }>(
      service.databaseUrl,
      `SELECT t::text AS row FROM ${table} t`,
    );
    const dump = rows.map(({ row }) => row).join('\n');
    expect(dump).toContain(id);
    expect(dump).not.toContain(secret);
    expect(dump).not.toContain(Buffer.from(secret).toString('base64').slice(0, 16));
  }
  expect(service.logs()).not.toContain(secret);
  expect((await get(id)).text + (await versions(id)).text).not.toContain(secret);
});
