import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { auditLines } from '../support/audit-lines.js';
import { HttpClient } from '../support/http-client.js';
import { runCli } from '../support/cli.js';
import { EventStreamClient } from '../support/event-stream-client.js';
import { query, type Service, startService, type TestUser } from '../support/service.js';
import { eventually } from '../support/sessions.js';

const SHELL = { name: 'a', provider: 'shell', model: 'shell/bash' };
const KIB = 1024;
const FULL = /^The limit of stored text is reached: /;
/** Five seconds, and room for a busy machine. */
const REVOKED_WITHIN_MS = 20_000;

let services: Service[];
let service: Service;
beforeAll(async () => {
  const env = { APP_ROLE: 'api', STORED_BYTES_PER_USER: '64KiB' };
  service = await startService({ env });
  const { databaseUrl } = service;
  services = [service, await startService({ env, databaseUrl })];
});
afterAll(async () => {
  for (const each of services.toReversed()) await each.stop();
});

const cli = (...args: string[]) =>
  runCli(args, { DATABASE_URL: service.databaseUrl, DATA_DIR: service.dataDir });

async function nameOf({ userId }: TestUser): Promise<string> {
  const [row] = await query<{ name: string }>(
    service.databaseUrl,
    'SELECT name FROM users WHERE id = $1',
    [userId],
  );
  return row?.name ?? '';
}

/** What is stored, as it is counted and as it is. */
async function storedOf({ userId }: TestUser) {
  const [row] = await query<{ counted: number; actual: number }>(
    service.databaseUrl,
    `SELECT stored_bytes::int AS counted, (
       SELECT coalesce(sum(octet_length(v.snapshot::text) + coalesce(octet_length(v.sealed), 0)), 0) FROM (
         SELECT v.snapshot, v.mcp_secrets_sealed AS sealed FROM agent_versions v JOIN agents a ON a.id = v.agent_id
          WHERE a.user_id = u.id
         UNION ALL
         SELECT v.snapshot, v.env_vars_sealed FROM environment_versions v
           JOIN environments e ON e.id = v.environment_id WHERE e.user_id = u.id) v)::int AS actual
       FROM users u WHERE id = $1`,
    [userId],
  );
  return row;
}

describe('stored text', () => {
  it('is counted with all versions, and beyond the limit refused', async () => {
    const user = await service.createUser();
    const large = 'x'.repeat(20 * KIB);
    const agent = (await user.http.post('/agents', { ...SHELL, system: large })).body;
    const environment = (
      await user.http.post('/environments', { setup_script: large, env_vars: { A: 'secret' } })
    ).body;
    const changed = { version: 1, system: `y${large}` };
    expect((await user.http.put(`/agents/${agent.id}`, changed)).status).toBe(200);
    const stored = await storedOf(user);
    expect(stored?.counted).toBeGreaterThan(60 * KIB);
    expect(stored?.counted).toBe(stored?.actual);
    for (const answer of [
      await user.http.post('/agents', { ...SHELL, system: large }),
      await user.http.put(`/agents/${agent.id}`, { version: 2, system: `z${large}` }),
      await user.http.post('/environments', { setup_script: large }),
      await user.http.put(`/environments/${environment.id}`, {
        version: 1,
        setup_script: `z${large}`,
      }),
    ]) {
      expect([answer.status, answer.body.detail]).toEqual([422, expect.stringMatching(FULL)]);
    }
    expect(await storedOf(user)).toEqual(stored);
    expect((await user.http.get(`/agents/${agent.id}`)).body.version).toBe(2);
    // Of another user it is not.
    expect((await service.http.post('/agents', { ...SHELL, system: large })).status).toBe(201);
    // What does not change anything stores nothing; a stale version is told first.
    expect((await user.http.put(`/agents/${agent.id}`, { version: 2, name: 'a' })).status).toBe(
      200,
    );
    expect((await user.http.put(`/agents/${agent.id}`, changed)).status).toBe(409);
    // Deleting gives back.
    expect((await user.http.delete(`/environments/${environment.id}/delete`)).status).toBe(200);
    const left = await storedOf(user);
    expect(left?.counted).toBe(left?.actual);
    expect((await user.http.post('/environments', { setup_script: large })).status).toBe(201);
  });

  it('is never more than the limit, however many ask at a time', async () => {
    const user = await service.createUser();
    const bodies = Array.from({ length: 40 }, (_none, index) => `${index}`.padEnd(8 * KIB, 'x'));
    const answers = await Promise.all(
      bodies.map((text, index) =>
        index % 2 === 0
          ? user.http.post('/agents', { ...SHELL, system: text })
          : user.http.post('/environments', { setup_script: text }),
      ),
    );
    const made = answers.filter(({ status }) => status === 201);
    expect(answers.filter(({ status }) => status === 422)).toHaveLength(40 - made.length);
    expect(made).toHaveLength(7);
    const stored = await storedOf(user);
    expect(stored?.counted).toBe(stored?.actual);
    expect(stored?.counted).toBeLessThanOrEqual(64 * KIB);
  });

  it('has a limit for each user, and none where that is 0', async () => {
    const user = await service.createUser();
    const name = await nameOf(user);
    const large = { ...SHELL, system: 'x'.repeat(100 * KIB) };
    expect((await user.http.post('/agents', large)).status).toBe(422);
    await cli('user', 'limit', name, '--stored-bytes', '1MiB');
    expect((await user.http.post('/agents', large)).status).toBe(201);
    await cli('user', 'limit', name, '--stored-bytes', '0');
    expect((await user.http.post('/agents', large)).status).toBe(201);
    await cli('user', 'limit', name, '--stored-bytes', 'default');
    expect((await user.http.post('/agents', SHELL)).status).toBe(422);
  });
});

it('REQUESTS_PER_MINUTE holds over all processes, for the users that have it', async () => {
  const user = await service.createUser();
  await cli('user', 'limit', await nameOf(user), '--requests-per-minute', '20');
  const clients = services.map(({ url }) => new HttpClient(url, user.token));
  const answers = [];
  for (let index = 0; index < 15; index += 1) {
    for (const client of clients) answers.push(await client.get('/agents'));
  }
  const refused = answers.filter(({ status }) => status === 429);
  expect(refused).toHaveLength(10);
  expect(refused[0]?.body).toEqual({
    detail: expect.stringMatching(
      /^Request limit reached \(20 requests a minute\)\. Try again in \d+ seconds\.$/,
    ),
    limit: 20,
    active: 20,
  });
  const wait = Number(refused[0]?.headers['retry-after']);
  expect(wait).toBeGreaterThan(0);
  expect(wait).toBeLessThanOrEqual(60);
  expect((await service.http.get('/agents')).status).toBe(200);
  // A raised limit holds as soon as processes have been notified.
  await cli('user', 'limit', await nameOf(user), '--requests-per-minute', '200');
  for (const client of clients) {
    await eventually(async () => (await client.get('/agents')).status === 200, 'the new limit');
  }
  await cli('user', 'limit', await nameOf(user), '--requests-per-minute', '20');
  // A minute later all is well again.
  await query(
    service.databaseUrl,
    `UPDATE request_counts SET since = since - interval '1 minute' WHERE user_id = $1`,
    [user.userId],
  );
  const third = await startService({ env: { APP_ROLE: 'api' }, databaseUrl: service.databaseUrl });
  try {
    const client = new HttpClient(third.url, user.token);
    expect((await client.get('/agents')).status).toBe(200);
  } finally {
    await third.stop();
  }
});

/** A session that nobody runs, whose streams stay open. */
async function waitingSession(user: TestUser): Promise<string> {
  const agentId = (await user.http.post('/agents', SHELL)).body.id;
  return (await user.http.post('/sessions', { agent_id: agentId, prompt: 'true' })).body.id;
}

it('STREAMS_PER_USER bounds what a user has open in a process', async () => {
  const user = await service.createUser();
  await cli('user', 'limit', await nameOf(user), '--streams', '2');
  const path = `${service.url}/sessions/${await waitingSession(user)}/stream`;
  const open = () => new EventStreamClient(path, { token: user.token });
  const streams = [open(), open()];
  try {
    await Promise.all(streams.map((stream) => stream.until(({ events }) => events.length > 0)));
    const { status, body, headers } = await user.http.get(new URL(path).pathname);
    expect([status, body]).toEqual([
      429,
      {
        detail: 'Concurrent stream limit reached (2 of 2 open). Close a stream first.',
        limit: 2,
        active: 2,
      },
    ]);
    expect(headers['retry-after']).toBe('5');
    await streams.shift()?.abort();
    await eventually(async () => {
      const third = open();
      await third.until(({ status: code }) => code !== 0);
      if (third.status === 200) streams.push(third);
      return third.status === 200;
    }, 'a free place');
  } finally {
    for (const stream of streams) await stream.abort();
  }
});

it('STREAMS_PER_USER holds for streams that are opened at the same time', async () => {
  const user = await service.createUser();
  await cli('user', 'limit', await nameOf(user), '--streams', '2');
  const path = `/sessions/${await waitingSession(user)}/stream`;
  // HEAD requests and failed requests keep no place.
  for (let index = 0; index < 3; index += 1) {
    expect((await user.http.send('HEAD', path)).status).toBe(200);
    expect((await user.http.get('/sessions/none/stream')).status).toBe(404);
  }
  const streams = Array.from(
    { length: 50 },
    () => new EventStreamClient(service.url + path, { token: user.token }),
  );
  try {
    await Promise.all(streams.map((stream) => stream.until(({ status }) => status !== 0)));
    expect(streams.filter(({ status }) => status === 200)).toHaveLength(2);
    expect(streams.filter(({ status }) => status === 429)).toHaveLength(48);
  } finally {
    for (const stream of streams) await stream.abort();
  }
});

/** What comments say besides that there is no worker here. */
const besidesWaiting = ({ comments }: EventStreamClient): string[] =>
  comments.filter((comment) => comment !== 'Waiting for a worker: none is running');

it.each([
  ['revoked', 'revoked_at = now()'],
  ['expired', "expires_at = now() - interval '1 second'"],
])('streams of a token that is %s end within 5 seconds, in every process', async (_how, set) => {
  const user = await service.createUser();
  const session = await waitingSession(user);
  const other = await waitingSession(service);
  const streams = services.map(
    ({ url }) => new EventStreamClient(`${url}/sessions/${session}/stream`, { token: user.token }),
  );
  const kept = new EventStreamClient(`${service.url}/sessions/${other}/stream`, {
    token: service.token,
  });
  try {
    await Promise.all(
      [...streams, kept].map((each) => each.until(({ events }) => events.length > 0)),
    );
    await query(service.databaseUrl, `UPDATE access_tokens SET ${set} WHERE user_id = $1`, [
      user.userId,
    ]);
    await Promise.all(streams.map((stream) => stream.cut(REVOKED_WITHIN_MS)));
    for (const stream of streams) {
      expect(besidesWaiting(stream)).toEqual(['the access token is no longer valid']);
      expect(stream.events).toHaveLength(1);
    }
    // A process may have looked the token up a moment before.
    const refused = async () => (await user.http.get('/agents')).status === 401;
    await eventually(refused, 'the token to be refused', REVOKED_WITHIN_MS);
    await delay(100);
    expect(besidesWaiting(kept)).toEqual([]);
  } finally {
    for (const each of [...streams, kept]) await each.abort();
  }
});

it('user limit changes what is named, user list shows it, and both are told in the audit log', async () => {
  await cli('user', 'create', 'limited');
  const limit = async (...args: string[]) =>
    (await cli('user', 'limit', 'limited', ...args, '--json')).json;
  const none = {
    session_limit: null,
    sandboxes_per_user: null,
    stored_bytes_per_user: null,
    requests_per_minute: null,
    streams_per_user: null,
    stored_bytes: 0,
  };
  expect(await limit()).toMatchObject(none);
  const set = ['--sessions', '4', '--sandboxes', '5', '--stored-bytes', '2GiB'];
  const all = [...set, '--requests-per-minute', '600', '--streams', '0'];
  const limits = {
    session_limit: 4,
    sandboxes_per_user: 5,
    stored_bytes_per_user: 2 * 2 ** 30,
    requests_per_minute: 600,
    streams_per_user: 0,
  };
  expect(await limit(...all)).toMatchObject(limits);
  const { data } = (await cli('user', 'list', '--json')).json as { data: { name: string }[] };
  expect(data.find(({ name }) => name === 'limited')).toMatchObject(limits);
  expect(await limit('7', '--streams', 'default')).toMatchObject({
    ...limits,
    session_limit: 7,
    streams_per_user: null,
  });
  expect((await cli('user', 'limit', 'limited', '--streams', '-1')).code).not.toBe(0);
  expect((await cli('user', 'limit', 'nobody', '--streams', '1')).code).toBe(3);
  await eventually(
    () =>
      services.flatMap((each) => auditLines(each)).filter(({ object }) => object === 'limited')
        .length >= 4,
    'the audit lines',
  );
});
