import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HttpClient } from '../support/http-client.js';
import { describeWith } from '../support/requirements.js';
import { leftOf } from '../support/sandbox-remains.js';
import { query, type Service } from '../support/service.js';
import {
  eventually,
  prepareSoftware,
  ROOTFS_TIMEOUT_MS,
  SessionsOf,
  startSessionService,
} from '../support/sessions.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';

const POOL = 2;
/** The first use of an engine, or of an environment there, takes its time. */
const LIMIT_MS = 120_000;

let database: TestDatabase;
let dataDir: string;
let gateway: Server;
let service: Service;
let sessions: SessionsOf;

const start = (env: Record<string, string> = {}) =>
  startSessionService(
    {
      WARM_POOL: String(POOL),
      METRICS_PORT: '0',
      SANDBOX_DISK: '64MiB',
      SANDBOX_MEMORY: '256MiB',
      // An address that sandboxes reach only if their policy says so.
      OPENAI_BASE_URL: `http://127.0.0.1:${port()}`,
      ...env,
    },
    { databaseUrl: database.url, dataDir },
  );
const port = () => (gateway.address() as AddressInfo).port;

beforeAll(async () => {
  database = await createTestDatabase();
  dataDir = mkdtempSync(join(tmpdir(), 'warm-'));
  gateway = createServer((_, response) => response.end()).listen(0, '127.0.0.1');
  await new Promise((resolve) => gateway.once('listening', resolve));
}, ROOTFS_TIMEOUT_MS);
beforeEach(async () => {
  service = await start();
  sessions = new SessionsOf(service, service);
}, LIMIT_MS);
afterEach(async () => {
  await sessions.clear();
  await eventually(
    async () => (await records()).every(isWarm),
    'the sandboxes of all sessions to be gone',
  );
  await service.stop();
  expect(await records()).toEqual([]);
  expect(await left()).toEqual([]);
}, LIMIT_MS);
afterAll(async () => {
  gateway.close();
  await database.drop();
  rmSync(dataDir, { recursive: true, force: true });
});

interface SandboxRow {
  session_id: string;
  sandbox_id: string | null;
  state: string;
}

const records = () =>
  query<SandboxRow>(
    database.url,
    'SELECT session_id, sandbox_id, state FROM sandboxes ORDER BY created_at',
  );

const isWarm = ({ state }: SandboxRow) => state === 'warming' || state === 'ready';

/** Which sandbox a session has; `undefined` for one of its own. */
async function adoptedBy(id: string): Promise<string | undefined> {
  const row = (await records()).find((record) => record.session_id === id);
  return row?.sandbox_id ?? undefined;
}

/** What is on the machine, or on the engine, of sandboxes. */
const left = (): Promise<string[]> => leftOf({ dataDir, databaseUrl: database.url });

async function figure(name: string): Promise<number> {
  const url = /Metrics on (http:[^\s"]+)/.exec(service.logs())?.[1] ?? '';
  const text = await (await fetch(url)).text();
  const line = text.split('\n').find((each) => each.startsWith(`agent_sessions_${name} `));
  return Number(line?.split(' ').at(-1));
}
const hits = () => figure('warm_starts_total{result="hit"}');
const misses = () => figure('warm_starts_total{result="miss"}');

const filled = () =>
  eventually(
    async () => (await figure('warm_sandboxes')) === POOL,
    () => `${POOL} sandboxes to be ready:\n${service.logs().slice(-4000)}`,
    LIMIT_MS,
  );

/** A session that has ended, and what it has printed. */
async function ended(prompt: string, members: object = {}) {
  const id = await sessions.create(prompt, members);
  const stream = await sessions.stream(id).end();
  return { id, stream, output: stream.output() };
}

describe('a session for which a sandbox is ready', () => {
  it(
    'adopts it, and is otherwise as any other',
    async () => {
      const cold = await ended('echo cold; ls -A ~ | wc -l; ls -A /tmp "$PWD" | wc -l');
      expect([await hits(), await misses(), await adoptedBy(cold.id)]).toEqual([0, 1, undefined]);
      await filled();

      const warm = await ended(
        'echo warm; ls -A ~ | wc -l; ls -A /tmp "$PWD" | wc -l; pwd > ~/kept',
      );
      expect([await hits(), await misses()]).toEqual([1, 1]);
      expect(await adoptedBy(warm.id)).toMatch(/^[0-9a-f-]{36}$/);
      expect(warm.output).toBe(cold.output.replace('cold', 'warm'));
      expect(warm.stream.stages()).toEqual(cold.stream.stages());

      await sessions.prompt(warm.id, 'cat ~/kept');
      const second = await sessions.stream(warm.id).end();
      expect(second.output()).toContain('/workspace');
      expect(second.last).toMatchObject({ type: 'exit', code: 0 });
    },
    LIMIT_MS,
  );

  it(
    'has it for itself, also among many that begin at the same time',
    async () => {
      await ended('true');
      await filled();
      const look =
        'ls -A ~ "$PWD"; echo mine > ~/mine-$$; echo mine > mine-$$; sleep 1; ls ~ "$PWD"';
      const all = await Promise.all(Array.from({ length: POOL + 3 }, () => ended(look)));
      expect(await hits()).toBe(POOL);
      const names = await Promise.all(all.map(async ({ id }) => (await adoptedBy(id)) ?? id));
      expect(new Set(names).size).toBe(all.length);
      for (const { output } of all) expect(output.match(/mine-\d+$/gm)).toHaveLength(2);

      // None of them is ever ready again.
      await filled();
      const fresh = await ended('ls ~ "$PWD" | grep -c mine');
      expect(fresh.output).toBe('0\n');
      expect(names).not.toContain(await adoptedBy(fresh.id));
    },
    LIMIT_MS,
  );

  it(
    'is held to its own network policy',
    async () => {
      const knock = `(exec 3<>/dev/tcp/127.0.0.1/${port()}) 2>/dev/null && echo reached || echo refused`;
      const environment_id = await sessions.createEnvironment({ networking: { type: 'limited' } });
      for (const [members, output] of [
        [{ environment_id }, 'refused\n'],
        [{}, 'reached\n'],
        [{ environment_id }, 'refused\n'],
      ] as const) {
        expect((await ended(knock, members)).output).toBe(output);
        // What is ready may still be of the kinds that were there before.
        await eventually(
          async () => {
            await filled();
            const session = await ended(knock, members);
            expect(session.output).toBe(output);
            return (await adoptedBy(session.id)) !== undefined;
          },
          'a session of its kind to find a sandbox ready',
          LIMIT_MS,
        );
      }
    },
    LIMIT_MS,
  );

  it(
    'is held to its limits',
    async () => {
      await ended('true');
      await filled();
      const [full, hungry] = await Promise.all([
        ended(
          'while head -c 8M /dev/zero >> ~/full; do sleep 0.05; done; echo the disk never ended',
        ),
        ended(`perl -e '$x = "a" x (600 << 20); print "memory never ended"'`),
      ]);
      expect(await hits()).toBe(2);
      for (const { output } of [full, hungry]) expect(output).not.toContain('never ended');
      expect(full.stream.last).toMatchObject({ type: 'error' });
      // The kernel refuses it, or the watch has seen it first.
      expect(hungry.stream.last).not.toMatchObject({ type: 'exit', code: 0 });
    },
    LIMIT_MS,
  );
});

describe('sandboxes that are kept ready', () => {
  it(
    'are gone after a stop, as are the ones that come to be',
    async () => {
      const id = await sessions.create('true');
      await sessions.stream(id).end();
      await filled();
      // One is missing from now on, and is just being made when the service stops, or not.
      await ended('true');
      expect((await records()).length).toBeGreaterThanOrEqual(POOL);
    },
    LIMIT_MS,
  );

  it(
    'are reaped by the next process when theirs was killed, and the ones of sessions are not',
    async () => {
      await ended('true');
      await filled();
      const kept = await ended('echo still here > ~/file');
      const sandbox = await adoptedBy(kept.id);
      await filled();
      const orphans = (await records()).filter(isWarm);
      expect(orphans.length).toBeGreaterThanOrEqual(POOL);
      const { token } = service;
      await service.kill9();

      service = await start();
      sessions = new SessionsOf(service, { token, http: new HttpClient(service.url, token) });
      await eventually(
        async () =>
          !(await records()).some(({ session_id }) =>
            orphans.some((orphan) => orphan.session_id === session_id),
          ),
        'the sandboxes of the killed process to be reaped',
        LIMIT_MS,
      );
      expect(await adoptedBy(kept.id)).toBe(sandbox);
      await sessions.prompt(kept.id, 'cat ~/file');
      expect((await sessions.stream(kept.id).end()).output()).toBe('still here\n');
      await sessions.clear();
    },
    LIMIT_MS,
  );
});

describeWith(['sandboxes with software'], 'an environment in recent use', () => {
  beforeAll(() => prepareSoftware(), ROOTFS_TIMEOUT_MS);

  const made = 'cat ~/made; cat /opt/made';
  const setup = (word: string) =>
    `echo "${word} $COLOUR" > ~/made; echo "${word} $(id -u)" >> /opt/made`;

  it(
    'is set up in what is ready, once, and never in an older version',
    async () => {
      const environment_id = await sessions.createEnvironment({
        env_vars: { COLOUR: 'red' },
        setup_script: setup('first'),
      });
      const cold = await ended(made, { environment_id });
      expect(cold.output).toBe('first red\nfirst 0\n');
      await filled();
      const warm = await ended(`${made}; id -u`, { environment_id });
      expect(await hits()).toBe(1);
      expect(warm.output).toBe('first red\nfirst 0\n1000\n');
      expect(warm.stream.stages()).toEqual(cold.stream.stages());

      await filled();
      const before = (await records()).filter(isWarm);
      const { status } = await sessions.http.put(`/environments/${environment_id}`, {
        version: 1,
        setup_script: setup('second'),
      });
      expect(status).toBe(200);
      const changed = await ended(made, { environment_id });
      expect(changed.output).toBe('second red\nsecond 0\n');
      expect(await hits()).toBe(1);
      await eventually(
        async () => {
          const now = await records();
          return !before.some((old) => now.some(({ session_id }) => session_id === old.session_id));
        },
        'what was ready of the older version to be gone',
        LIMIT_MS,
      );
      await filled();
      expect((await ended(made, { environment_id })).output).toBe('second red\nsecond 0\n');
      expect(await hits()).toBe(2);

      await filled();
      await sessions.http.post(`/environments/${environment_id}/archive`);
      await eventually(
        async () => (await records()).every(({ state }) => state === 'active' || state === 'idle'),
        'nothing to be ready for an environment that gets no sessions any more',
        LIMIT_MS,
      );
    },
    ROOTFS_TIMEOUT_MS,
  );
});
