import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { HttpClient } from '../support/http-client.js';
import { eventually, SessionsOf, startSessionService } from '../support/sessions.js';
import { query, type Service, startService } from '../support/service.js';

let service: Service;
let nobody: HttpClient;
beforeAll(async () => {
  service = await startSessionService();
  nobody = new HttpClient(service.url);
});
afterAll(() => service.stop());

/** The budget of what the first page loads, compressed. Terminals and diffs load when they are needed. */
const FIRST_LOAD_BYTES = 200 * 1024;
const JSON_TYPE = { 'content-type': 'application/json' };

const signIn = (token: string, headers: Record<string, string> = { origin: service.url }) =>
  nobody.post('/console/session', { token }, { headers: { ...JSON_TYPE, ...headers } });

/** The cookie as a browser sends it. */
async function cookieOf(token: string): Promise<string> {
  const { status, headers } = await signIn(token);
  expect(status).toBe(200);
  return String(headers['set-cookie']).split(';')[0] ?? '';
}

describe('the cookie', () => {
  it('is given for a valid token, unreadable for scripts, and does not contain the token', async () => {
    const { status, headers, body } = await signIn(service.token);
    expect(status).toBe(200);
    expect(body).toEqual({ user: { name: expect.stringMatching(/^test /), operator: false } });
    const cookie = String(headers['set-cookie']);
    expect(cookie).toMatch(/^console=v1\.\S+; Path=\/; Max-Age=604800; HttpOnly; SameSite=Strict$/);
    expect(cookie).not.toContain(service.token);
    expect(headers['cache-control']).toBe('no-store');
  });

  it('is only sent over HTTPS where the page came by HTTPS', async () => {
    const https = service.url.replace('http:', 'https:');
    const { headers } = await signIn(service.token, { origin: https });
    expect(String(headers['set-cookie'])).toMatch(/^__Host-console=.*; Secure$/);
  });

  it('is not given for an invalid token', async () => {
    const answer = await signIn('ast_nonsense');
    expect(answer.status).toBe(401);
    expect(answer.headers['set-cookie']).toBeUndefined();
    expect((await nobody.post('/console/session', {}, { headers: JSON_TYPE })).status).toBe(422);
  });

  it('is not given to a page of another origin, nor without one', async () => {
    const forged: Record<string, string>[] = [
      {},
      { origin: 'https://elsewhere.example' },
      { origin: 'null' },
      { origin: service.url, 'sec-fetch-site': 'cross-site' },
    ];
    for (const headers of forged) {
      const answer = await signIn(service.token, headers);
      expect([headers, answer.status]).toEqual([headers, 401]);
      expect(answer.headers['set-cookie']).toBeUndefined();
    }
  });

  it('reads and changes what the token could, for the own page', async () => {
    const cookie = await cookieOf(service.token);
    const read = await nobody.get('/agents', { headers: { cookie } });
    expect(read.status).toBe(200);
    const agent = { name: 'made by the console', provider: 'shell', model: 'shell/bash' };
    const made = await nobody.post('/agents', agent, {
      headers: { cookie, origin: service.url, 'sec-fetch-site': 'same-origin' },
    });
    expect(made.status).toBe(201);
    expect((await service.http.get(`/agents/${made.body.id}`)).status).toBe(200);
    const other = await service.createUser();
    expect((await other.http.get(`/agents/${made.body.id}`)).status).toBe(404);
  });

  it('is worth nothing to other pages', async () => {
    const cookie = await cookieOf(service.token);
    const agent = { name: 'forged', provider: 'shell', model: 'shell/bash' };
    const forged: Record<string, string>[] = [
      { cookie },
      { cookie, origin: 'https://elsewhere.example' },
      { cookie, origin: 'null' },
      { cookie, origin: service.url, 'sec-fetch-site': 'cross-site' },
      { cookie, origin: service.url, 'sec-fetch-site': 'same-site' },
      { cookie, origin: service.url, 'sec-fetch-site': 'none' },
    ];
    for (const headers of forged) {
      expect([headers, (await nobody.post('/agents', agent, { headers })).status]).toEqual([
        headers,
        401,
      ]);
    }
    for (const site of ['cross-site', 'same-site']) {
      const headers = { cookie, 'sec-fetch-site': site };
      expect((await nobody.get('/agents', { headers })).status).toBe(401);
    }
    const headers = { cookie, origin: 'https://elsewhere.example' };
    expect((await nobody.get('/agents', { headers })).status).toBe(401);
  });

  it('is no token, and cannot be changed', async () => {
    const cookie = await cookieOf(service.token);
    const [, value = ''] = cookie.split('=');
    const bearer = { authorization: `Bearer ${value}` };
    expect((await nobody.get('/agents', { headers: bearer })).status).toBe(401);
    // Not the last character, which need not stand for a whole one of the bytes.
    const at = value.length - 10;
    const changed = `${value.slice(0, at)}${value[at] === 'A' ? 'B' : 'A'}${value.slice(at + 1)}`;
    for (const forged of [changed, value.slice(0, -4), service.token, '', '.']) {
      const headers = { cookie: `console=${forged}` };
      expect([forged, (await nobody.get('/agents', { headers })).status]).toEqual([forged, 401]);
    }
  });

  it('does not count where a header names a token', async () => {
    const cookie = await cookieOf(service.token);
    const headers = { cookie, authorization: 'Bearer ast_nonsense' };
    expect((await nobody.get('/agents', { headers })).status).toBe(401);
  });

  it('ends with its token', async () => {
    const user = await service.createUser();
    const cookie = await cookieOf(user.token);
    expect((await nobody.get('/agents', { headers: { cookie } })).status).toBe(200);
    await query(
      service.databaseUrl,
      'UPDATE access_tokens SET revoked_at = now() WHERE user_id = $1',
      [user.userId],
    );
    await eventually(
      async () => (await nobody.get('/agents', { headers: { cookie } })).status === 401,
      'the cookie to be refused',
    );
    const { body } = await nobody.get('/console/session', { headers: { cookie } });
    expect(body).toEqual({ user: null });
  });

  it('is removed when somebody signs out', async () => {
    const cookie = await cookieOf(service.token);
    const before = await nobody.get('/console/session', { headers: { cookie } });
    expect(before.body).toMatchObject({ user: { name: expect.any(String) } });
    const headers = { cookie, origin: service.url };
    const out = await nobody.send('DELETE', '/console/session', undefined, { headers });
    expect(out.status).toBe(200);
    expect(String(out.headers['set-cookie'])).toMatch(/^console=; Path=\/; Max-Age=0;/);
    const elsewhere = { cookie, origin: 'https://elsewhere.example' };
    const forced = await nobody.send('DELETE', '/console/session', undefined, {
      headers: elsewhere,
    });
    expect(forced.status).toBe(401);
  });

  it('makes answers inert, should a browser open one as a page', async () => {
    const cookie = await cookieOf(service.token);
    const { headers } = await nobody.get('/agents', { headers: { cookie } });
    expect(headers['content-security-policy']).toBe(
      "default-src 'none'; sandbox; frame-ancestors 'none'",
    );
    expect(headers['x-content-type-options']).toBe('nosniff');
    expect(headers['cache-control']).toBe('no-store');
    const plain = await service.http.get('/agents');
    expect(plain.headers['content-security-policy']).toBeUndefined();
  });

  it('opens streams', async () => {
    const sessions = new SessionsOf(service, service);
    const id = await sessions.completed('echo for the console');
    const cookie = await cookieOf(service.token);
    const { text, headers } = await nobody.get(`/sessions/${id}/stream`, { headers: { cookie } });
    expect(headers['content-type']).toBe('text/event-stream');
    expect(headers['cache-control']).toBe('no-cache');
    expect(text).toContain('for the console');
    await sessions.clear();
  });
});

describe('the page', () => {
  it('is the same for every address, with a policy that only allows our own files', async () => {
    const addresses = ['/console', '/console/', '/console/sessions/x', '/console/agents'];
    const nonces = new Set<string>();
    for (const address of addresses) {
      const { status, headers, text } = await nobody.get(address);
      expect([address, status]).toEqual([address, 200]);
      expect(headers['content-type']).toBe('text/html; charset=utf-8');
      expect(headers['cache-control']).toBe('no-store');
      const policy = String(headers['content-security-policy']);
      expect(policy).toContain("default-src 'none'; script-src 'self';");
      expect(policy).toContain("frame-ancestors 'none'");
      expect(policy).toContain("require-trusted-types-for 'script'; trusted-types 'none'");
      expect(policy).not.toMatch(/unsafe|https?:|\*/);
      const nonce = /style-src 'self' 'nonce-([^']+)'/.exec(policy)?.[1] ?? '';
      expect(text).toContain(`nonce="${nonce}"`);
      expect(text).toContain('<base href="/console/" />');
      expect(text).not.toContain('%');
      nonces.add(nonce);
    }
    expect(nonces.size).toBe(addresses.length);
  });

  it('loads its files from here, compressed and for ever', async () => {
    const { text } = await nobody.get('/console');
    const files = [...text.matchAll(/(?:src|href)="\.\/(assets\/[^"]+)"/g)].map(([, file]) => file);
    expect(files.length).toBeGreaterThanOrEqual(3);
    const total = { br: 0, gzip: 0 };
    for (const file of files) {
      const plain = await nobody.get(`/console/${file}`);
      expect(plain.status).toBe(200);
      expect(plain.headers['cache-control']).toBe('public, max-age=31536000, immutable');
      expect(plain.headers['x-content-type-options']).toBe('nosniff');
      for (const encoding of ['br', 'gzip'] as const) {
        const { headers } = await nobody.get(`/console/${file}`, {
          headers: { 'accept-encoding': encoding },
        });
        expect(headers['content-encoding']).toBe(encoding);
        total[encoding] += Number(headers['content-length']);
      }
    }
    expect(Math.max(total.br, total.gzip)).toBeLessThan(FIRST_LOAD_BYTES);
    expect(Math.min(total.br, total.gzip)).toBeGreaterThan(0);
  });

  it('has no other files', async () => {
    for (const file of ['nothing.js', '..%2Findex.html', '..%2f..%2fpackage.json', '%00']) {
      expect([file, (await nobody.get(`/console/assets/${file}`)).status]).toEqual([file, 404]);
    }
  });
});

describe('a service', () => {
  it('without console serves no page and accepts no cookie', async () => {
    const without = await startService({
      databaseUrl: service.databaseUrl,
      env: { CONSOLE: 'off' },
    });
    try {
      const client = new HttpClient(without.url);
      expect((await client.get('/console')).status).toBe(404);
      expect((await client.get('/console/session')).status).toBe(404);
      const cookie = await cookieOf(service.token);
      expect((await client.get('/agents', { headers: { cookie } })).status).toBe(401);
    } finally {
      await without.stop();
    }
  });

  it('behind another address tells its page where things are', async () => {
    const behind = await startService({
      databaseUrl: service.databaseUrl,
      env: { PUBLIC_URL: 'https://agents.example/team', API_PREFIX: '/v1' },
    });
    try {
      const client = new HttpClient(behind.url);
      const { text } = await client.get('/console');
      expect(text).toContain('<base href="/team/console/" />');
      expect(text).toContain('<meta name="api-prefix" content="/v1" />');
      const headers = { ...JSON_TYPE, origin: 'https://agents.example' };
      const answer = await client.post('/console/session', { token: behind.token }, { headers });
      expect(answer.status).toBe(200);
      const cookie = String(answer.headers['set-cookie']).split(';')[0] ?? '';
      expect((await client.get('/v1/agents', { headers: { cookie } })).status).toBe(200);
    } finally {
      await behind.stop();
    }
  });
});
