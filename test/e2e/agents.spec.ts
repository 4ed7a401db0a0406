import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { query, type Service, startService } from '../support/service.js';

const MICROSECONDS = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$/;
const UUID_V4 = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const NOWHERE = '00000000-0000-4000-8000-000000000000';
const MINIMUM = { name: 'a', provider: 'shell', model: 'shell/bash' };

let service: Service;
beforeAll(async () => {
  service = await startService();
});
afterAll(() => service.stop());

const post = (body: object = {}) => service.http.post('/agents', { ...MINIMUM, ...body });
const put = (id: string, body: object) => service.http.put(`/agents/${id}`, body);
const get = (id: string) => service.http.get(`/agents/${id}`);
const versions = (id: string) => service.http.get(`/agents/${id}/versions`);
const create = async (body: object = {}) => (await post(body)).body;

describe('creating', () => {
  it('needs a name, a provider and a model, and has defaults', async () => {
    const { status, body } = await post();
    expect(status).toBe(201);
    expect(body).toEqual({
      id: expect.stringMatching(UUID_V4),
      type: 'agent',
      ...MINIMUM,
      system: '',
      skills: [],
      mcp_servers: [],
      environment_id: null,
      metadata: {},
      version: 1,
      created_at: expect.stringMatching(MICROSECONDS),
      updated_at: body.created_at,
      archived_at: null,
    });
    expect((await get(body.id)).body).toEqual(body);
  });

  it('names every field that is missing', async () => {
    for (const answer of [
      await service.http.post('/agents', {}),
      await service.http.post('/agents'),
    ]) {
      expect(answer.status).toBe(422);
      expect(answer.body.detail.map(({ type, loc }) => [type, loc])).toEqual(
        expect.arrayContaining([
          ['missing', ['body', 'name']],
          ['missing', ['body', 'provider']],
          ['missing', ['body', 'model']],
        ]),
      );
      expect(answer.body.detail).toHaveLength(3);
    }
  });

  it('gives everything back, and of secrets the sorted names', async () => {
    const environment = await service.http.post('/environments', {});
    const skills = [
      {
        name: 'review',
        description: 'd',
        content: '# Review',
        files: [{ path: 'a/b.md', content: '' }],
      },
      { name: 'bare', content: '' },
      { type: 'git', url: 'https://git.example.com/skills.git', ref: 'v1.2', path: 'skills/x' },
    ];
    const { status, body } = await post({
      system: 'Be brief.',
      skills,
      mcp_servers: [
        {
          type: 'stdio',
          name: 'files',
          command: 'npx',
          args: ['-y', 'mcp'],
          env: { Z: '1', A: '2' },
        },
        {
          type: 'url',
          name: 'remote',
          url: 'https://mcp.example.com/x?y',
          headers: { 'X-Key': 's' },
        },
        { type: 'sse', name: 'constructor', url: 'http://mcp.example.com' },
      ],
      environment_id: environment.body.id,
      metadata: { team: 'a', gone: '', constructor: 'c' },
      id: NOWHERE,
    });
    expect(status).toBe(201);
    expect(body).toMatchObject({
      system: 'Be brief.',
      skills,
      environment_id: environment.body.id,
      metadata: { team: 'a', constructor: 'c' },
    });
    expect(body.metadata).not.toHaveProperty('gone');
    expect(body.mcp_servers).toEqual([
      { type: 'stdio', name: 'files', command: 'npx', args: ['-y', 'mcp'], env_keys: ['A', 'Z'] },
      { type: 'http', name: 'remote', url: 'https://mcp.example.com/x?y', header_keys: ['X-Key'] },
      { type: 'sse', name: 'constructor', url: 'http://mcp.example.com', header_keys: [] },
    ]);
    expect(body.id).not.toBe(NOWHERE);
  });

  it('refuses an unknown provider with 400 and a model of another with 422, both in words', async () => {
    for (const provider of ['nobody', '', 'toString', '__proto__']) {
      const answer = await post({ provider });
      expect([answer.status, typeof answer.body.detail]).toEqual([400, 'string']);
    }
    for (const model of ['gpt-5', '', 'shell/', 'xshell/bash']) {
      const answer = await post({ model });
      expect([answer.status, typeof answer.body.detail]).toEqual([422, 'string']);
    }
  });

  it("refuses an environment that is not there or another user's", async () => {
    const { http } = await service.createUser();
    const theirs = (await http.post('/environments', {})).body.id;
    for (const environment_id of [
      NOWHERE,
      theirs,
      'x',
      '',
      `{${NOWHERE}}`,
      `urn:uuid:${NOWHERE}`,
    ]) {
      const answer = await post({ environment_id });
      expect([answer.status, answer.body]).toEqual([404, { detail: 'Environment not found' }]);
    }
  });
});

describe('what is refused', () => {
  const skill = { name: 's', content: 'c' };
  const stdio = { type: 'stdio', name: 'v', command: 'x' };
  const remote = { type: 'http', name: 'r', url: 'https://a.example' };

  it.each<[string, object, [string, ...(string | number)[]][]]>([
    ['an empty name', { name: '' }, [['string_too_short', 'name']]],
    [
      'null for what is not nullable',
      { name: null, system: null, skills: null, mcp_servers: null, metadata: null },
      [
        ['string_type', 'name'],
        ['string_type', 'system'],
        ['list_type', 'skills'],
        ['list_type', 'mcp_servers'],
        ['object_type', 'metadata'],
      ],
    ],
    [
      'numbers for texts',
      { provider: 1, model: 2, system: 3 },
      [
        ['string_type', 'provider'],
        ['string_type', 'model'],
        ['string_type', 'system'],
      ],
    ],
    ['a number for an id', { environment_id: 5 }, [['string_type', 'environment_id']]],
    [
      'labels that are no texts',
      { metadata: { a: 1, b: null, c: 'x', d: {} } },
      [
        ['string_type', 'metadata', 0],
        ['string_type', 'metadata', 1],
        ['string_type', 'metadata', 3],
      ],
    ],
    ['a list for metadata', { metadata: [] }, [['object_type', 'metadata']]],
    [
      'too many labels',
      { metadata: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`k${i}`, 'v'])) },
      [['too_long', 'metadata']],
    ],
    [
      'skills that are no objects',
      { skills: [3, null, [], 'x'] },
      [0, 1, 2, 3].map((i) => ['object_type', 'skills', i]),
    ],
    [
      'an inline skill without its parts',
      { skills: [{}] },
      [
        ['missing', 'skills', 0, 'name'],
        ['missing', 'skills', 0, 'content'],
      ],
    ],
    [
      'a skill of an unknown type',
      { skills: [{ ...skill, type: 'zip' }] },
      [['enum', 'skills', 0, 'type']],
    ],
    [
      'skill files outside the folder',
      {
        skills: [
          {
            ...skill,
            files: [
              '/a',
              '../a',
              'a/../b',
              'a//b',
              '.',
              'a/..',
              'a\\b',
              'ok/x',
              'SKILL.md',
              '',
            ].map((path) => ({ path, content: '' })),
          },
        ],
      },
      [0, 1, 2, 3, 4, 5, 6, 8, 9].map((i) => [
        'string_pattern_mismatch',
        'skills',
        0,
        'files',
        i,
        'path',
      ]),
    ],
    [
      'skill files of wrong types',
      { skills: [{ ...skill, files: [1, { path: 1 }] }] },
      [
        ['object_type', 'skills', 0, 'files', 0],
        ['string_type', 'skills', 0, 'files', 1, 'path'],
        ['missing', 'skills', 0, 'files', 1, 'content'],
      ],
    ],
    [
      'a skill name that is no folder',
      { skills: [{ ...skill, name: '../x' }] },
      [['string_pattern_mismatch', 'skills', 0, 'name']],
    ],
    ['a skill twice', { skills: [skill, skill] }, [['duplicate', 'skills', 1, 'name']]],
    [
      'skills that would lie in one folder',
      {
        skills: [
          { ...skill, name: 'notes' },
          { type: 'git', url: 'https://a.example/team/notes.git' },
          { type: 'git', url: 'https://a.example/x', path: 'skills/notes', name: 'other' },
          { type: 'git', url: 'https://a.example/notes', path: 'skills/else' },
        ],
      },
      [
        ['duplicate', 'skills', 1, 'url'],
        ['duplicate', 'skills', 2, 'url'],
      ],
    ],
    [
      'skill files that would be folders, or come twice',
      {
        skills: [
          {
            ...skill,
            files: ['x/y', 'x', 'xy', 'SKILL.md/z', 'a/b', 'a/b', 'a/c'].map((path) => ({
              path,
              content: '',
            })),
          },
        ],
      },
      [
        ['path_conflict', 'skills', 0, 'files', 0, 'path'],
        ['path_conflict', 'skills', 0, 'files', 3, 'path'],
        ['duplicate', 'skills', 0, 'files', 5, 'path'],
      ],
    ],
    [
      'what git and agent programs would read differently',
      {
        mcp_servers: [
          'https:a.example/x',
          'https:///a.example',
          ' https://a.example',
          'https://a.exa\nmple',
          'https://*.com/mcp',
          'https://a.example/%E0%A4%A',
        ].map((url, index) => ({ ...remote, name: `s${index}`, url })),
      },
      [0, 1, 2, 3, 4, 5].map((i) => ['url', 'mcp_servers', i, 'url']),
    ],
    [
      'addresses that are none, or hold a password',
      {
        skills: [
          'ssh://a/b',
          'x',
          'https://u:p@a.example',
          'https://u@a.example',
          'file:///etc',
        ].map((url) => ({ type: 'git', url })),
      },
      [0, 1, 2, 3, 4].map((i) => ['url', 'skills', i, 'url']),
    ],
    [
      'refs and paths that are options or go up',
      { skills: [{ type: 'git', url: 'https://a.example', ref: '--upload-pack=x', path: '../x' }] },
      [
        ['string_pattern_mismatch', 'skills', 0, 'ref'],
        ['string_pattern_mismatch', 'skills', 0, 'path'],
      ],
    ],
    [
      'tool servers that are no objects',
      { mcp_servers: [3, null, []] },
      [0, 1, 2].map((i) => ['object_type', 'mcp_servers', i]),
    ],
    [
      'a tool server of no or an unknown type',
      { mcp_servers: [{ name: 'a' }, { type: 'ftp', name: 'b' }] },
      [
        ['missing', 'mcp_servers', 0, 'type'],
        ['enum', 'mcp_servers', 1, 'type'],
      ],
    ],
    [
      'tool servers without their parts',
      { mcp_servers: [{ type: 'stdio' }, { type: 'http' }] },
      [
        ['missing', 'mcp_servers', 0, 'name'],
        ['missing', 'mcp_servers', 0, 'command'],
        ['missing', 'mcp_servers', 1, 'name'],
        ['missing', 'mcp_servers', 1, 'url'],
      ],
    ],
    [
      'wrong types inside tool servers',
      {
        mcp_servers: [
          { ...stdio, args: ['a', 1], env: { A: 1, 'B-': 'x' } },
          { ...remote, url: 3, headers: { A: null, 'B C': 'x', D: 'a\r\nb' } },
        ],
      },
      [
        ['string_type', 'mcp_servers', 0, 'args', 1],
        ['string_type', 'mcp_servers', 0, 'env', 0],
        ['string_pattern_mismatch', 'mcp_servers', 0, 'env', 1],
        ['string_type', 'mcp_servers', 1, 'url'],
        ['string_type', 'mcp_servers', 1, 'headers', 0],
        ['string_pattern_mismatch', 'mcp_servers', 1, 'headers', 1],
        ['string_pattern_mismatch', 'mcp_servers', 1, 'headers', 2],
      ],
    ],
    [
      'a tool server twice',
      { mcp_servers: [stdio, { ...remote, name: 'v' }] },
      [['duplicate', 'mcp_servers', 1, 'name']],
    ],
  ])('%s', async (_name, body, expected) => {
    const answer = await post(body);
    expect(answer.status).toBe(422);
    const found = answer.body.detail.map(({ type, loc }) => [type, ...loc.slice(1)].join('.'));
    expect([...found].sort()).toEqual(expected.map((item) => item.join('.')).sort());
  });
});

describe('reading', () => {
  it('lists active ones newest first, and an archived one only by its id', async () => {
    const user = await service.createUser();
    const ids: string[] = [];
    for (let index = 0; index < 3; index += 1)
      ids.unshift((await user.http.post('/agents', MINIMUM)).body.id);
    await user.http.post(`/agents/${ids[1]}/archive`);
    const { body } = await user.http.get('/agents');
    expect(body.data.map(({ id }) => id)).toEqual([ids[0], ids[2]]);
    expect((await user.http.get(`/agents/${ids[1]}`)).body.archived_at).toMatch(MICROSECONDS);
  });

  it.each(['x', NOWHERE, '%00', '..%2f..'])('knows no id %p', async (id) => {
    for (const answer of [
      await get(id),
      await put(id, { version: 1 }),
      await service.http.post(`/agents/${id}/archive`),
      await versions(id),
    ]) {
      expect([answer.status, answer.body]).toEqual([404, { detail: 'Agent not found' }]);
    }
  });

  it("does not tell another user's from one that is not there", async () => {
    const { id } = await create();
    const { http } = await service.createUser();
    for (const answer of [
      await http.get(`/agents/${id}`),
      await http.put(`/agents/${id}`, { version: 1, name: 'theirs' }),
      await http.post(`/agents/${id}/archive`),
      await http.get(`/agents/${id}/versions`),
    ]) {
      expect([answer.status, answer.body]).toEqual([404, { detail: 'Agent not found' }]);
    }
    expect((await http.get('/agents')).body).toEqual({ data: [] });
    expect((await get(id)).body.version).toBe(1);
  });
});

describe('changing', () => {
  it('merges metadata, replaces lists, leaves the rest, and keeps every version', async () => {
    const server = { type: 'stdio', name: 'v', command: 'x', env: { K: 'secret' } };
    const first = await create({
      metadata: { team: 'a', env: 'b' },
      mcp_servers: [server],
      system: 's',
    });
    const second = await put(first.id, { version: 1, metadata: { env: 'c', team: '' } });
    expect(second.body).toEqual({
      ...first,
      metadata: { env: 'c' },
      version: 2,
      updated_at: expect.stringMatching(MICROSECONDS),
    });
    const third = await put(first.id, { version: 2, name: 'b', mcp_servers: [] });
    expect(third.body).toMatchObject({ name: 'b', mcp_servers: [], system: 's', version: 3 });
    expect((await versions(first.id)).body).toEqual({
      // Each was created when it was written.
      data: [third.body, second.body, first].map((one) => ({ ...one, created_at: one.updated_at })),
    });
    expect((await get(first.id)).body).toEqual(third.body);
  });

  it.each<[string, object]>([
    ['nothing', {}],
    ['empty metadata', { metadata: {} }],
    ['the same label', { metadata: { team: 'a' } }],
    ['deleting a label that is not there', { metadata: { nope: '' } }],
    [
      'the same tool server with its secrets',
      { mcp_servers: [{ type: 'url', name: 'r', url: 'https://a.example', headers: { K: 'v' } }] },
    ],
    ['the same provider and model', { provider: 'shell', model: 'shell/bash' }],
    ['the same null', { environment_id: null }],
  ])('does not count as a change: %s', async (_name, change) => {
    const before = await create({
      metadata: { team: 'a' },
      mcp_servers: [{ type: 'http', name: 'r', url: 'https://a.example', headers: { K: 'v' } }],
    });
    const answer = await put(before.id, { version: 1, ...change });
    expect([answer.status, answer.body]).toEqual([200, before]);
    expect((await versions(before.id)).body.data).toHaveLength(1);
  });

  it('sees that only the value of a secret changed', async () => {
    const server = { type: 'stdio', name: 'v', command: 'x' };
    const { id } = await create({ mcp_servers: [{ ...server, env: { K: '1' } }] });
    const answer = await put(id, { version: 1, mcp_servers: [{ ...server, env: { K: '2' } }] });
    expect(answer.body.version).toBe(2);
  });

  it('keeps the secrets of tool servers that are sent back as they were read', async () => {
    const before = await create({
      mcp_servers: [
        { type: 'stdio', name: 'own', command: 'x', args: ['-v'], env: { K: '1' } },
        { type: 'http', name: 'remote', url: 'https://a.example', headers: { H: '1' } },
      ],
    });
    const [own, remote] = before['mcp_servers'] as object[];
    const same = await put(before.id, { version: 1, mcp_servers: [own, remote] });
    expect([same.status, same.body]).toEqual([200, before]);

    const swapped = await put(before.id, { version: 1, mcp_servers: [remote, own], name: 'n' });
    expect(swapped.body).toMatchObject({ version: 2, mcp_servers: [remote, own] });

    const elsewhere = [
      { ...own, command: 'y' },
      { ...remote, url: 'https://b.example' },
    ];
    const moved = await put(before.id, { version: 2, mcp_servers: elsewhere });
    expect(moved.body['mcp_servers']).toEqual([
      { ...elsewhere[0], env_keys: [] },
      { ...elsewhere[1], header_keys: [] },
    ]);
  });

  it.each<[string, object]>([
    ['another name', { name: 'other' }],
    ['another type', { type: 'sse' }],
    ['another address', { url: 'https://a.example/x' }],
    ['a program', { type: 'stdio', command: 'x' }],
    ['no headers', { headers: {} }],
    ['other headers', { headers: { Z: '1' } }],
  ])('drops the secrets of a tool server that becomes %s', async (_name, change) => {
    const server = { type: 'http', name: 'r', url: 'https://a.example' };
    const { id } = await create({ mcp_servers: [{ ...server, headers: { H: 'secret' } }] });
    const { body } = await put(id, { version: 1, mcp_servers: [{ ...server, ...change }] });
    expect(JSON.stringify(body)).not.toContain('"H"');
    expect(body.version).toBe(2);
  });

  it('takes ids in any case and answers with their own', async () => {
    const agent = await create();
    const upper = agent.id.toUpperCase();
    expect((await get(upper)).body).toEqual(agent);
    expect((await put(upper, { version: 1, name: 'n' })).body).toMatchObject({ id: agent.id });
    expect((await versions(upper)).body.data).toHaveLength(2);
    expect((await service.http.post(`/agents/${upper}/archive`)).body.id).toBe(agent.id);
  });

  it('judges provider and model together, and the environment, before anything is written', async () => {
    const before = await create();
    for (const [change, status] of [
      [{ provider: 'nobody' }, 400],
      [{ model: 'claude-x' }, 422],
      [{ environment_id: NOWHERE }, 404],
      [{ name: null }, 422],
    ] as const) {
      expect((await put(before.id, { version: 1, ...change })).status).toBe(status);
    }
    expect((await get(before.id)).body).toEqual(before);
  });

  it('sets and clears the environment', async () => {
    const environment = await service.http.post('/environments', {});
    const { id } = await create();
    const environment_id = environment.body.id;
    expect((await put(id, { version: 1, environment_id })).body.environment_id).toBe(
      environment_id,
    );
    expect(
      (await put(id, { version: 2, environment_id: environment_id.toUpperCase() })).body.version,
    ).toBe(2);
    expect((await put(id, { version: 2, environment_id: null })).body).toMatchObject({
      environment_id: null,
      version: 3,
    });
  });

  it('bounds the labels that a merge leaves', async () => {
    const labels = (from: number, to: number) =>
      Object.fromEntries(Array.from({ length: to - from }, (_, i) => [`k${from + i}`, 'v']));
    const { id } = await create({ metadata: labels(0, 60) });
    const answer = await put(id, { version: 1, metadata: labels(60, 65) });
    expect(answer.status).toBe(422);
    expect(answer.body.detail).toEqual([
      { type: 'too_long', loc: ['body', 'metadata'], msg: expect.any(String) },
    ]);
  });

  it.each([0, 2, 1e300])('is refused with the stale version %p', async (version) => {
    const { id } = await create();
    expect(await put(id, { version, name: 'x' })).toMatchObject({
      status: 409,
      body: { detail: `Version mismatch: expected 1, got ${version}` },
    });
  });

  it('lets exactly one of 30 win, without a gap', async () => {
    const { id } = await create();
    for (let version = 1; version <= 3; version += 1) {
      const answers = await Promise.all(
        Array.from({ length: 30 }, (_, index) =>
          put(id, { version, metadata: { n: `${version}-${index}` } }),
        ),
      );
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
      const others = answers.filter(({ status }) => status !== 200);
      for (const { status, body } of others) {
        expect([status, body.detail]).toEqual([
          409,
          `Version mismatch: expected ${version + 1}, got ${version}`,
        ]);
      }
    }
    const history = (await versions(id)).body.data;
    expect(history.map(({ version }) => version)).toEqual([4, 3, 2, 1]);
    expect((await get(id)).body).toMatchObject({ ...history[0], created_at: expect.anything() });
  });

  it('never mixes an archive into a change', async () => {
    const { id } = await create();
    const [archived, ...changes] = await Promise.all([
      service.http.post(`/agents/${id}/archive`),
      ...Array.from({ length: 10 }, (_, index) => put(id, { version: 1, name: `n${index}` })),
    ]);
    expect(archived?.status).toBe(200);
    for (const { status } of changes) expect([200, 409]).toContain(status);
    const now = (await get(id)).body;
    expect(now.archived_at).not.toBeNull();
    expect((await versions(id)).body.data[0]).toMatchObject({
      version: now.version,
      name: now.name,
    });
  });
});

it('archives once, and changes nothing afterwards', async () => {
  const before = await create();
  const archived = await service.http.post(`/agents/${before.id}/archive`);
  expect(archived.status).toBe(200);
  expect(archived.body.archived_at).toMatch(MICROSECONDS);
  expect(await service.http.post(`/agents/${before.id}/archive`)).toMatchObject({
    status: 409,
    body: { detail: 'Agent is already archived' },
  });
  expect(await put(before.id, { version: 1, name: 'x' })).toMatchObject({
    status: 409,
    body: { detail: 'Cannot update an archived agent' },
  });
  expect((await service.http.delete(`/agents/${before.id}`)).status).toBe(405);
});

it('keeps no secret of a tool server readable in the database, the logs or an answer', async () => {
  const secret = 'planted-mcp-secret-5521';
  const body = {
    mcp_servers: [
      { type: 'stdio', name: 'a', command: 'x', env: { K: secret } },
      { type: 'http', name: 'b', url: 'https://a.example', headers: { K: `Bearer ${secret}` } },
    ],
  };
  const created = await post(body);
  const changed = await put(created.body.id, { version: 1, name: 'b' });
  const refused = await post({ ...body, name: 3 });
  for (const table of ['agents', 'agent_versions']) {
    const rows = await query<{ row: string }>(
      service.databaseUrl,
      `SELECT t::text AS row FROM ${table} t`,
    );
    const dump = rows.map(({ row }) => row).join('\n');
    expect(dump).toContain(created.body.id);
    expect(dump).not.toContain(secret);
  }
  for (const text of [created.text, changed.text, refused.text, service.logs()]) {
    expect(text).not.toContain(secret);
  }
});
