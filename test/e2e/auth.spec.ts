import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { generateAccessToken, hashAccessToken } from '../../src/auth/access-token.js';
import { HttpClient } from '../support/http-client.js';
import { query, type Service, startService } from '../support/service.js';
import { eventually } from '../support/sessions.js';

const NOWHERE = '00000000-0000-4000-8000-000000000000';

let service: Service;
beforeAll(async () => {
  service = await startService();
});
afterAll(() => service.stop());

const withHeader = (authorization: string | undefined) =>
  new HttpClient(service.url).get('/agents', {
    headers: authorization === undefined ? {} : { authorization },
  });

/** Inserts a token of the service's user. `validity` is SQL. */
async function token(validity: { expires?: string; revoked?: string } = {}) {
  const text = generateAccessToken();
  const [row] = await query<{ id: string }>(
    service.databaseUrl,
    `INSERT INTO access_tokens (user_id, token_hash, expires_at, revoked_at)
     VALUES ($1, $2, ${validity.expires ?? 'NULL'}, ${validity.revoked ?? 'NULL'}) RETURNING id`,
    [service.userId, hashAccessToken(text)],
  );
  return { id: row?.id ?? '', text };
}

describe('what is refused, always in the same words', () => {
  it.each<[string, () => string | undefined | Promise<string>]>([
    ['no header', () => undefined],
    ['an empty one', () => ''],
    ['no scheme', () => service.token],
    ['another scheme', () => `Basic ${service.token}`],
    ['the scheme alone', () => 'Bearer'],
    ['the scheme and spaces', () => 'Bearer   '],
    ['two tokens', () => `Bearer ${service.token} ${service.token}`],
    ['a token with a comma', () => `Bearer ${service.token},`],
    ['words', () => 'Bearer hello'],
    [
      'a token with its last character changed',
      () => `Bearer ${service.token.slice(0, -1)}${service.token.endsWith('x') ? 'y' : 'x'}`,
    ],
    ['a token in capitals', () => `Bearer ${service.token.toUpperCase()}`],
    ['a well-formed one that nobody has', () => `Bearer ${generateAccessToken()}`],
    [
      'an expired one',
      async () => `Bearer ${(await token({ expires: "now() - interval '1 second'" })).text}`,
    ],
    ['a revoked one', async () => `Bearer ${(await token({ revoked: 'now()' })).text}`],
    ['10,000 characters', () => `Bearer ${'a'.repeat(10_000)}`],
    ['SQL', () => "Bearer ' OR 1=1 --"],
  ])('%s', async (_name, header) => {
    const answer = await withHeader(await header());
    expect(answer.status).toBe(401);
    expect(answer.body).toEqual({ detail: 'Missing or invalid access token' });
    expect(answer.headers['www-authenticate']).toBe('Bearer');
  });

  it('comes before what is wrong with the request', async () => {
    const nobody = new HttpClient(service.url);
    for (const answer of [
      await nobody.post('/agents', undefined, { raw: '{' }),
      await nobody.post('/agents', { name: 3 }),
      await nobody.post('/agents', undefined, {
        raw: 'x',
        headers: { 'content-type': 'text/plain' },
      }),
      await nobody.put(`/environments/${NOWHERE}`, {}),
    ]) {
      expect(answer.status).toBe(401);
    }
  });
});

it.each(['Bearer', 'bearer', 'BEARER', 'bEaReR  '])('takes the scheme as %p', async (scheme) => {
  expect((await withHeader(`${scheme} ${service.token}`)).status).toBe(200);
});

it('takes a token that expires later until it does', async () => {
  const { id, text } = await token({ expires: "now() + interval '1 hour'" });
  expect((await withHeader(`Bearer ${text}`)).status).toBe(200);
  await query(service.databaseUrl, 'UPDATE access_tokens SET expires_at = now() WHERE id = $1', [
    id,
  ]);
  await eventually(
    async () => (await withHeader(`Bearer ${text}`)).status === 401,
    'the token to be refused',
  );
});

it('sees a revocation in every process', async () => {
  const second = await startService({ databaseUrl: service.databaseUrl });
  try {
    const { id, text } = await token();
    const clients = [service.url, second.url].map((url) => new HttpClient(url, text));
    const statuses = async () =>
      Promise.all(clients.map(async (client) => (await client.get('/agents')).status));
    expect(await statuses()).toEqual([200, 200]);
    await query(service.databaseUrl, 'UPDATE access_tokens SET revoked_at = now() WHERE id = $1', [
      id,
    ]);
    await eventually(
      async () => (await statuses()).every((status) => status === 401),
      'the token to be refused by both',
    );
  } finally {
    await second.stop();
  }
});

it('notes the last use beside the request, and not with each one', async () => {
  const { id, text } = await token();
  const lastUse = async () => {
    const [row] = await query<{ last: string | null; writes: string }>(
      service.databaseUrl,
      'SELECT last_used_at::text AS last, xmin::text AS writes FROM access_tokens WHERE id = $1',
      [id],
    );
    return row;
  };
  expect((await lastUse())?.last).toBeNull();
  for (let index = 0; index < 10; index += 1) await withHeader(`Bearer ${text}`);
  await eventually(async () => (await lastUse())?.last !== null, 'the use to be noted');
  const first = await lastUse();
  await Promise.all(Array.from({ length: 20 }, () => withHeader(`Bearer ${text}`)));
  expect(await lastUse()).toEqual(first);
});

it('never stores, nor logs, a token', async () => {
  const { text } = await token();
  await withHeader(`Bearer ${text}`);
  const rows = await query<{ row: string }>(
    service.databaseUrl,
    'SELECT t::text AS row FROM access_tokens t',
  );
  const dump = rows.map(({ row }) => row).join('\n');
  expect(dump).toContain(hashAccessToken(text).toString('hex'));
  expect(dump).not.toContain(text.slice(4, 20));
  expect(service.logs()).not.toContain(text.slice(4, 20));
});
