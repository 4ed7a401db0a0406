import { randomBytes, randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { KeyRing, secretContext } from '../../src/secrets/key-ring.js';
import { type CliResult, runCli } from '../support/cli.js';
import { HttpClient } from '../support/http-client.js';
import { query, type Service, type ServiceOptions, startService } from '../support/service.js';
import { eventually } from '../support/sessions.js';

const HERE = 'http://127.0.0.1:1';
const NOWHERE = '00000000-0000-4000-8000-000000000000';
const FOLLOW_ELSEWHERE = ['sessions', 'follow', NOWHERE, '--url', HERE, '--token', 'ast_x'];

let service: Service;
let cli: (...args: string[]) => Promise<CliResult>;
beforeAll(async () => {
  service = await startService();
  cli = (...args) => runCli(args, { DATABASE_URL: service.databaseUrl, DATA_DIR: service.dataDir });
});
afterAll(() => service.stop());

/** Those of single tests; a test that fails before it stops them leaves them to this. */
const others: Service[] = [];
async function startOther(options: ServiceOptions): Promise<Service> {
  const other = await startService(options);
  others.push(other);
  return other;
}
afterEach(() => Promise.all(others.splice(0).map((other) => other.stop())));

const issue = async (...args: string[]) =>
  (await cli('token', 'create', '--json', ...args)).json as {
    id: string;
    token: string;
    expires_at: string | null;
  };

describe('users and tokens', () => {
  it('makes a user and a token that works, until it is revoked', async () => {
    const user = await cli('user', 'create', 'alice', '--session-limit', '3', '--json');
    expect(user.json).toEqual({
      id: expect.any(String),
      name: 'alice',
      operator: false,
      session_limit: 3,
      sandboxes_per_user: null,
      stored_bytes: 0,
      stored_bytes_per_user: null,
      requests_per_minute: null,
      streams_per_user: null,
      tokens_per_month: null,
      usd_per_month: null,
      created_at: expect.stringMatching(/\.\d{6}\+00:00$/),
    });
    const { id, token, expires_at } = await issue(
      '--user',
      'alice',
      '--name',
      'laptop',
      '--expires',
      '90d',
    );
    expect(token).toMatch(/^ast_[0-9A-Za-z]{49}$/);
    const days = (Date.parse(String(expires_at)) - Date.now()) / 86_400_000;
    expect(Math.round(days)).toBe(90);

    const http = new HttpClient(service.url, token);
    expect((await http.get('/agents')).status).toBe(200);
    expect(await cli('token', 'revoke', id)).toMatchObject({ code: 0, stderr: '' });
    await eventually(
      async () => (await http.get('/agents')).status === 401,
      'the token to be refused',
    );
    expect((await cli('token', 'revoke', id)).code).toBe(0);
  });

  it('lists them, to people in columns and to programs as one object, and never a secret', async () => {
    await cli('user', 'create', 'bob');
    const { id, token } = await issue('--user', 'bob', '--name', 'ci');
    const users = (await cli('user', 'list', '--json')).json.data as { name: string }[];
    expect(users.map(({ name }) => name)).toContain('bob');
    const listed = await cli('token', 'list', '--json');
    expect((listed.json.data as object[])[0]).toEqual({
      id,
      user: 'bob',
      name: 'ci',
      created_at: expect.any(String),
      last_used_at: null,
      expires_at: null,
      revoked_at: null,
    });
    const table = await cli('token', 'list');
    expect(table.stdout.split('\n')[0]).toMatch(
      /^ID +USER +NAME +CREATED +LAST USED +EXPIRES +REVOKED$/,
    );
    expect(table.stdout).toMatch(new RegExp(`^${id}  bob +ci `, 'm'));
    for (const text of [listed.stdout, table.stdout]) expect(text).not.toContain(token.slice(4));
  });

  it('changes the limit of a user, and takes it back', async () => {
    await cli('user', 'create', 'dora');
    const limits = async (...limit: string[]) =>
      (await cli('user', 'limit', 'dora', ...limit, '--json')).json.session_limit;
    expect([await limits('7'), await limits('0'), await limits('default')]).toEqual([7, 0, null]);
    expect((await cli('user', 'limit', 'dora', '4')).stdout).toBe(
      'The session limit of dora is 4\n',
    );
  });

  it('lists the tokens of one user', async () => {
    for (const name of ['emil', 'fay']) {
      await cli('user', 'create', name);
      await issue('--user', name);
    }
    const { json } = await cli('token', 'list', '--user', 'emil', '--json');
    expect((json.data as { user: string }[]).map(({ user }) => user)).toEqual(['emil']);
  });

  it('prints a token to people, too', async () => {
    await cli('user', 'create', 'carol');
    const { stdout } = await cli('token', 'create', '--user', 'carol');
    expect(stdout.split('\n')[0]).toMatch(/^ast_[0-9A-Za-z]{49}$/);
  });

  it('gives the first user of several services that start at once to one of them', async () => {
    const rows = await query<{ n: number }>(
      service.databaseUrl,
      `SELECT count(*)::int AS n FROM users WHERE name = 'dev'`,
    );
    expect(rows[0]?.n).toBe(1);
    await query(
      service.databaseUrl,
      'CREATE DATABASE "first_users" TEMPLATE template_ass STRATEGY file_copy',
    );
    const url = new URL(service.databaseUrl);
    url.pathname = '/first_users';
    try {
      const services = await Promise.all(
        [0, 1, 2].map(() => startOther({ databaseUrl: url.href })),
      );
      const printed = services.map((each) => /^ {2}(ast_\w+)$/m.exec(each.logs())?.[1]);
      const token = printed.find((text) => text !== undefined);
      expect(printed.filter((text) => text !== undefined)).toHaveLength(1);
      const { status } = await new HttpClient(services[0]?.url ?? '', token).get('/agents');
      await Promise.all(services.map((each) => each.stop()));
      expect(status).toBe(200);
    } finally {
      await query(service.databaseUrl, 'DROP DATABASE "first_users" WITH (FORCE)');
    }
  });
});

describe('what goes wrong', () => {
  beforeAll(() => cli('user', 'create', 'twice'));

  it.each<[string, number, string[]]>([
    ['a user that is there', 4, ['user', 'create', 'twice']],
    ['a user without a name', 2, ['user', 'create', ' ']],
    ['a limit for nobody', 3, ['user', 'limit', 'nobody', '3']],
    ['a token for nobody', 3, ['token', 'create', '--user', 'nobody']],
    ['the tokens of nobody', 3, ['token', 'list', '--user', 'nobody']],
    ['revoking nothing', 3, ['token', 'revoke', NOWHERE]],
    ['revoking no id', 3, ['token', 'revoke', 'x']],
    ['showing nothing', 3, ['sessions', 'show', NOWHERE]],
    ['following nothing', 3, ['sessions', 'follow', NOWHERE]],
    ['following no id', 3, ['sessions', 'follow', 'x']],
    ['following by the service without a token', 2, ['sessions', 'follow', NOWHERE, '--url', HERE]],
    ['following where no service is', 5, [...FOLLOW_ELSEWHERE]],
    ['an unknown command', 2, ['frobnicate']],
    ['a doctor who has to measure nothing', 2, ['doctor', '--only', 'stream']],
  ])('%s: one line, exit code %i', async (_name, code, args) => {
    const result = await cli(...args);
    expect([result.code, result.stdout]).toEqual([code, '']);
    expect(result.stderr).toMatch(/^error: [^\n]+\n$/);
  });

  it('a bad configuration, and keys that are not those of the database: exit code 6', async () => {
    const env = { DATABASE_URL: service.databaseUrl, DATA_DIR: service.dataDir };
    const bad = await runCli(['user', 'list'], { ...env, PORT: 'x' });
    expect(bad).toMatchObject({ code: 6, stderr: expect.stringMatching(/^error: PORT: .+\n$/) });
    const other = `test:${randomBytes(32).toString('base64')}`;
    const keys = await runCli(['secrets', 'reencrypt'], { ...env, ENCRYPTION_KEYS: other });
    expect(keys).toMatchObject({
      code: 6,
      stderr: expect.stringMatching(/^error: ENCRYPTION_KEYS/),
    });
  });

  it('helps without a database', async () => {
    const { code, stdout } = await runCli(['user', '--help'], { DATABASE_URL: 'nonsense' });
    expect([code, stdout.split('\n')[0]]).toEqual([
      0,
      'Usage: agent-sessions user [options] [command]',
    ]);
  });

  it('says in one line that no database is there', async () => {
    const empty = await mkdtemp(join(tmpdir(), 'cli-'));
    try {
      for (const env of [
        { DATABASE_URL: undefined, DATA_DIR: empty },
        { DATABASE_URL: 'postgres://someone:hunter2@127.0.0.1:1/x', DATA_DIR: empty },
        { DATABASE_URL: 'nonsense', DATA_DIR: empty },
      ]) {
        const { code, stdout, stderr } = await runCli(['user', 'list'], env);
        expect([code, stdout]).toEqual([env.DATABASE_URL === 'nonsense' ? 6 : 5, '']);
        expect(stderr).toMatch(/^error: [^\n]+\n$/);
        expect(stderr).not.toContain('hunter2');
      }
    } finally {
      await rm(empty, { recursive: true, force: true });
    }
  });
});

it('changes the key of every secret beside a running service, and lets go of the old one', async () => {
  const [old, fresh] = ['old', 'new'].map((id) => `${id}:${randomBytes(32).toString('base64')}`);
  const first = await startOther({ env: { ENCRYPTION_KEYS: old } });
  const { databaseUrl, dataDir } = first;
  const options = { databaseUrl, dataDir };
  const env = { DATABASE_URL: databaseUrl, DATA_DIR: dataDir };
  const environment = await first.http.post('/environments', { env_vars: { K: 'v1' } });
  for (let version = 1; version < 120; version += 1) {
    await first.http.put(`/environments/${environment.body.id}`, {
      version,
      env_vars: { K: `v${version + 1}` },
    });
  }
  const agent = { name: 'a', provider: 'shell', model: 'shell/bash' };
  const servers = (value: string) => [
    { type: 'stdio', name: 's', command: 'x', env: { K: value } },
  ];
  const { body } = await first.http.post('/agents', { ...agent, mcp_servers: servers('1') });
  const sessionId = randomUUID();
  await query(
    databaseUrl,
    `INSERT INTO sessions (id, user_id, agent_id, agent_version, provider, timeout, resources, status, secrets_sealed)
     VALUES ($1, $2, $3, 1, 'shell', 60, '[]', 'completed', $4)`,
    [
      sessionId,
      first.userId,
      body.id,
      KeyRing.parse(old ?? '').seal('token', secretContext.session(sessionId)),
    ],
  );

  await runCli(['user', 'create', 'keyed'], env);
  const setKey = ['user', 'key', 'set', 'keyed', 'openai'];
  expect((await runCli(setKey, { ...env, ENCRYPTION_KEYS: old }, 'own-key\n')).code).toBe(0);

  const both = `${fresh},${old}`;
  const second = await startOther({ ...options, env: { ENCRYPTION_KEYS: both } });
  const keysInUse = async () => {
    const rows = await query<{ key: string }>(
      databaseUrl,
      `SELECT DISTINCT split_part(sealed, '.', 2) AS key FROM (
         SELECT env_vars_sealed AS sealed FROM environments UNION ALL
         SELECT env_vars_sealed FROM environment_versions UNION ALL
         SELECT mcp_secrets_sealed FROM agents UNION ALL
         SELECT mcp_secrets_sealed FROM agent_versions UNION ALL
         SELECT secrets_sealed FROM sessions UNION ALL
         SELECT key_sealed FROM user_keys) sealed ORDER BY 1`,
    );
    return rows.map(({ key }) => key);
  };
  expect(await keysInUse()).toEqual(['old']);
  expect(
    (await runCli(['secrets', 'reencrypt', '--json'], { ...env, ENCRYPTION_KEYS: fresh })).code,
  ).toBe(6);

  const busy = Array.from({ length: 30 }, (_, index) =>
    second.http.put(`/agents/${body.id}`, {
      version: index + 1,
      mcp_servers: servers(`x${index}`),
    }),
  );
  const [done] = await Promise.all([
    runCli(['secrets', 'reencrypt', '--json'], { ...env, ENCRYPTION_KEYS: both }),
    ...busy,
  ]);
  expect(done.json).toMatchObject({ key_id: 'new', unused_key_ids: ['old'] });
  expect(done.json.resealed).toBeGreaterThanOrEqual(123);
  expect(await keysInUse()).toEqual(['new']);
  const [session] = await query<{ sealed: string }>(
    databaseUrl,
    'SELECT secrets_sealed AS sealed FROM sessions',
  );
  const opened = KeyRing.parse(fresh ?? '').open(
    session?.sealed ?? '',
    secretContext.session(sessionId),
  );
  expect(opened).toBe('token');
  const [own] = await query<{ sealed: string; id: string }>(
    databaseUrl,
    'SELECT key_sealed AS sealed, user_id AS id FROM user_keys',
  );
  const ownContext = secretContext.userKey(own?.id ?? '', 'openai');
  expect(KeyRing.parse(fresh ?? '').open(own?.sealed ?? '', ownContext)).toBe('own-key');
  await second.stop();

  const third = await startOther({ ...options, env: { ENCRYPTION_KEYS: fresh } });
  const http = new HttpClient(third.url, first.token);
  const same = await http.put(`/environments/${environment.body.id}`, {
    version: 120,
    env_vars: { K: 'v120' },
  });
  expect([same.status, same.body.version]).toEqual([200, 120]);
  await third.stop();

  const again = await runCli(['secrets', 'reencrypt', '--json'], {
    ...env,
    ENCRYPTION_KEYS: fresh,
  });
  expect(again.json).toEqual({ key_id: 'new', resealed: 0, unused_key_ids: [] });
  // Its own ring is the old one: it could open nothing any more, but it stops in order.
  await first.stop();
});
