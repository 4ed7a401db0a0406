import { once } from 'node:events';
import { type ClientRequest, request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Client } from 'pg';
import { registeredRoutes } from '../support/app-routes.js';
import { type AuditLine, auditLines } from '../support/audit-lines.js';
import { HttpClient } from '../support/http-client.js';
import { runCli } from '../support/cli.js';
import { testWith } from '../support/requirements.js';
import { query, type Service, startService } from '../support/service.js';
import { eventually } from '../support/sessions.js';

const NOWHERE = '00000000-0000-4000-8000-000000000000';
/** Signs browsers in and out, without a token in a header. */
const CONSOLE_SESSION = '/console/session';
const SECRET = 'planted-secret-0123456789';
const SHELL = { name: 'a', provider: 'shell', model: 'shell/bash' };

let service: Service;
let tokenId: string;
let changing: string[];
beforeAll(async () => {
  service = await startService();
  changing = (await registeredRoutes(service)).filter(
    (route) => !/^(GET|HEAD|OPTIONS) /.test(route) && !route.endsWith(CONSOLE_SESSION),
  );
  const [token] = await query<{ id: string }>(
    service.databaseUrl,
    'SELECT id FROM access_tokens WHERE user_id = $1',
    [service.userId],
  );
  tokenId = token?.id ?? '';
});
afterAll(() => service.stop());

/** The lines that `work` leaves, as soon as there are so many; more would be seen by whoever comes next. */
async function linesOf(work: () => Promise<unknown>, count = 1): Promise<AuditLine[]> {
  const before = auditLines(service).length;
  await work();
  await eventually(() => auditLines(service).length >= before + count, 'the audit lines');
  return auditLines(service).slice(before);
}

const urlOf = (route: string) => (route.split(' ')[1] ?? '').replaceAll(/:\w+/g, NOWHERE);
const methodOf = (route: string) => route.split(' ')[0] ?? '';

describe('requests', () => {
  it('leave one line on every route that may change something, also when they are refused', async () => {
    expect(changing.length).toBeGreaterThanOrEqual(10);
    const nobody = new HttpClient(service.url, 'ast_nonsense');
    for (const route of changing) {
      const [refused] = await linesOf(() => nobody.send(methodOf(route), urlOf(route), {}));
      expect(refused).toMatchObject({
        user_id: null,
        token_id: null,
        action: route,
        object_id: route.includes(':id') ? NOWHERE : null,
        status: 401,
        request_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      });
      const lines = await linesOf(() => service.http.send(methodOf(route), urlOf(route), {}));
      expect(lines).toHaveLength(1);
      expect(lines[0]).toMatchObject({ user_id: service.userId, token_id: tokenId, action: route });
    }
  });

  testWith(['bubblewrap'], 'name what they created and changed, and how it went', async () => {
    const told: string[] = [];
    const ids: Record<string, string> = {};
    const does = async (route: string, as: string, body: object, status: number) => {
      const id = ids[as];
      const path = urlOf(route).replace(NOWHERE, id ?? '');
      const [line] = await linesOf(async () => {
        const answer = await service.http.send(methodOf(route), path, body);
        ids[as] ??= answer.body.id;
      });
      expect(line).toMatchObject({ action: route, object_id: ids[as], status });
      told.push(route);
    };
    const servers = [{ type: 'stdio', name: 's', command: 'x', env: { TOKEN: SECRET } }];
    await does('POST /environments', 'environment', { env_vars: { KEY: SECRET } }, 201);
    await does('PUT /environments/:id', 'environment', { version: 1, setup_script: SECRET }, 200);
    await does('PUT /environments/:id', 'environment', { version: 1, name: 'late' }, 409);
    await does('POST /environments/:id/archive', 'environment', {}, 200);
    await does('DELETE /environments/:id/delete', 'environment', {}, 200);
    await does('POST /agents', 'agent', { ...SHELL, mcp_servers: servers }, 201);
    await does('PUT /agents/:id', 'agent', { version: 1, system: SECRET }, 200);
    const session = { agent_id: ids.agent, prompt: `sleep 60 # ${SECRET}` };
    await does('POST /sessions', 'session', session, 202);
    await does('POST /sessions/:id/prompt', 'session', { prompt: SECRET }, 409);
    // The path of the file is missing.
    await does('PUT /sessions/:id/files/content', 'session', {}, 422);
    await does('DELETE /sessions/:id/files', 'session', {}, 422);
    await does('POST /sessions/:id/terminate', 'session', {}, 200);
    await does('DELETE /sessions/:id/delete', 'session', {}, 200);
    await does('POST /agents/:id/archive', 'agent', {}, 200);
    // What operators do is told by operator.spec.
    const ofUsers = changing.filter((route) => !route.includes(' /operator/'));
    expect([...new Set(told)].sort()).toEqual(ofUsers.sort());
  });

  it('leave one when a browser signs in or out, or is refused', async () => {
    const token = JSON.stringify({ token: service.token });
    const sent = [
      ['POST', service.url, token, 200],
      ['POST', 'http://elsewhere.example', token, 401],
      ['POST', service.url, '{}', 422],
      ['DELETE', service.url, undefined, 200],
    ] as const;
    for (const [method, origin, body, status] of sent) {
      const headers = { origin, ...(body && { 'content-type': 'application/json' }) };
      const lines = await linesOf(() =>
        fetch(`${service.url}${CONSOLE_SESSION}`, { method, body, headers }),
      );
      expect(lines).toMatchObject([{ action: `${method} ${CONSOLE_SESSION}`, status }]);
    }
  });

  it('leave none when they only look, or look at nothing', async () => {
    const lines = await linesOf(async () => {
      await service.http.get('/agents');
      await service.http.get(`/sessions/${NOWHERE}`);
      await service.http.post('/nowhere', {});
      await service.http.post('/environments', 'no object');
    });
    expect(lines.map(({ action, status }) => [action, status])).toEqual([
      ['POST /environments', 422],
    ]);
  });

  it('never bring a body, a token or a path that is no id into the log', async () => {
    await linesOf(() => service.http.post(`/sessions/${SECRET}/terminate`, {}));
    const logged = JSON.stringify(auditLines(service));
    expect(logged).toContain('"object_id":null');
    for (const secret of [SECRET, service.token, 'sleep 60']) expect(logged).not.toContain(secret);
  });
});

describe('requests whose client hangs up', () => {
  it('leave one line with what became of them', async () => {
    const blocker = new Client({ connectionString: service.databaseUrl });
    await blocker.connect();
    try {
      // What the request asks for waits until its client is gone.
      await blocker.query('BEGIN; LOCK TABLE environments IN ACCESS EXCLUSIVE MODE');
      const lines = await linesOf(async () => {
        const body = '{"name":"left alone"}';
        const outgoing = openRequest('POST', '/environments', body);
        outgoing.end(body);
        await eventually(async () => {
          const waiting = await query<{ count: number }>(
            service.databaseUrl,
            `SELECT count(*)::int AS count FROM pg_locks l JOIN pg_database d ON d.oid = l.database
              WHERE d.datname = current_database() AND NOT granted`,
          );
          return (waiting[0]?.count ?? 0) > 0;
        }, 'the request to wait');
        outgoing.destroy();
        await eventually(
          () => service.logs().includes('POST /environments 499'),
          'the end of the connection',
        );
        await blocker.query('COMMIT');
      });
      const [made] = await query<{ id: string }>(
        service.databaseUrl,
        `SELECT id FROM environments WHERE name = 'left alone'`,
      );
      expect(made).toBeDefined();
      expect(lines).toHaveLength(1);
      expect(lines[0]).toMatchObject({
        user_id: service.userId,
        action: 'POST /environments',
        object_id: made?.id,
        status: 201,
      });
    } finally {
      await blocker.end();
    }
  });

  it('and that never sent all of it leave one without a status', async () => {
    const lines = await linesOf(async () => {
      const outgoing = openRequest('POST', '/environments', '{"name":"half"}', {
        expect: '100-continue',
      });
      outgoing.flushHeaders();
      // The service has read the head.
      await once(outgoing, 'continue');
      outgoing.write('{"na');
      await delay(300);
      outgoing.destroy();
    });
    await delay(300);
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatchObject({ action: 'POST /environments', object_id: null, status: null });
  });
});

/** A request with all its headers, whose body is yet to come. */
function openRequest(
  method: string,
  path: string,
  body: string,
  more: Record<string, string> = {},
): ClientRequest {
  const headers = {
    ...more,
    authorization: `Bearer ${service.token}`,
    'content-type': 'application/json',
    'content-length': body.length,
  };
  const outgoing = request(`${service.url}${path}`, { method, headers, agent: false });
  // That it is cut off is the point.
  outgoing.on('error', () => undefined);
  outgoing.flushHeaders();
  return outgoing;
}

describe('commands', () => {
  const env = () => ({ DATABASE_URL: service.databaseUrl, DATA_DIR: service.dataDir });

  it('leave one line in the log of the service, done or refused', async () => {
    const create = ['user', 'create', 'audited'];
    const [done, again] = await linesOf(async () => {
      await runCli(create, env());
      await runCli(create, env());
    }, 2);
    expect(done).toMatchObject({
      operator: expect.stringMatching(/^\S+@\S+/),
      action: 'user create',
      object: 'audited',
      result: 'done',
      at: expect.stringMatching(/\+00:00$/),
    });
    const [mistaken] = await linesOf(() => runCli(['token', 'revoke', service.token], env()));
    expect(mistaken).toMatchObject({ object: null, result: 'not_found' });
    expect(again).toMatchObject({ action: 'user create', object: 'audited', result: 'conflict' });
  });

  it('print their output although no audit entry can be written', async () => {
    const { databaseUrl } = service;
    await query(
      databaseUrl,
      `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no more lines'; END $$`,
    );
    await query(
      databaseUrl,
      'CREATE TRIGGER refuse BEFORE INSERT ON operator_actions EXECUTE FUNCTION refuse()',
    );
    try {
      const { code, json, stderr } = await runCli(
        ['token', 'create', '--user', 'audited', '--json'],
        env(),
      );
      expect([code, json['token']]).toEqual([0, expect.stringMatching(/^ast_/)]);
      expect(stderr).toMatch(/^warning: .*no more lines\n$/);
    } finally {
      await query(databaseUrl, 'DROP FUNCTION refuse CASCADE');
    }
  });

  it('wait in the database while no service runs, and are written once', async () => {
    const { databaseUrl, dataDir } = service;
    await query(
      databaseUrl,
      `INSERT INTO operator_actions (operator, action, object, result)
       VALUES ('somebody@elsewhere', 'token revoke', 'x', 'done')`,
    );
    const others = await Promise.all(
      [0, 1].map(() => startService({ databaseUrl, dataDir, env: { APP_ROLE: 'api' } })),
    );
    const waiting = () =>
      [service, ...others]
        .flatMap((each) => auditLines(each))
        .filter(({ operator }) => operator === 'somebody@elsewhere');
    try {
      await eventually(() => waiting().length > 0, 'the line');
      const left = await query(databaseUrl, 'SELECT FROM operator_actions');
      expect([left.length, waiting().length]).toEqual([0, 1]);
    } finally {
      await Promise.all(others.map((other) => other.stop()));
    }
  });
});
