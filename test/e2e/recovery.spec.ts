import { afterAll, beforeAll, beforeEach, afterEach, describe, expect, it } from '@jest/globals';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HttpClient } from '../support/http-client.js';
import { onDocker, onSprites } from '../support/driver.js';
import { describeWith } from '../support/requirements.js';
import { killSupervisors, removeCaches, runningOf } from '../support/sandbox-remains.js';
import { query, type Service } from '../support/service.js';
import {
  eventually,
  leaveNothing,
  prepareSoftware,
  ROOTFS_TIMEOUT_MS,
  SessionsOf,
  startSessionService,
} from '../support/sessions.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';

const TWENTY = 'for i in $(seq 20); do echo $i; sleep 0.15; done';
const LINES = Array.from({ length: 20 }, (_, index) => `${index + 1}\n`).join('');

let database: TestDatabase;
let dataDir: string;
let service: Service;
let sessions: SessionsOf;
let token: string;
const start = () => startSessionService({}, { databaseUrl: database.url, dataDir });

beforeAll(async () => {
  database = await createTestDatabase();
  dataDir = mkdtempSync(join(tmpdir(), 'recovery-'));
});
beforeEach(async () => {
  service = await start();
  token = service.token;
  sessions = new SessionsOf(service, service);
});
afterEach(async () => {
  try {
    await leaveNothing(service, [sessions]);
  } finally {
    await service.stop();
  }
});
afterAll(async () => {
  await removeCaches(database.url);
  await database.drop();
  rmSync(dataDir, { recursive: true, force: true });
});

/** Starts the service anew; the user and what they have are the ones from before. */
async function again(): Promise<void> {
  service = await start();
  sessions = new SessionsOf(service, { token, http: new HttpClient(service.url, token) });
}

const nothingRuns = () =>
  eventually(async () => (await runningOf(service)).length === 0, 'nothing to run any more');

const withLine = (line: number) => (client: { output(): string }) =>
  client.output().includes(`\n${line}\n`);

describe('kill -9 of the service', () => {
  it('in the middle of a turn loses and repeats nothing', async () => {
    const id = await sessions.create(`${TWENTY}; exit 3`);
    const before = sessions.stream(id);
    await before.until(withLine(5));
    await service.kill9();
    await before.cut().catch(() => undefined);
    const seen = before.events.at(-1)?.id ?? 0;
    await again();
    const after = await sessions.stream(id, { lastEventId: seen }).end();
    expect(before.output() + after.output()).toBe(LINES);
    expect(after.last).toMatchObject({ type: 'exit', code: 3 });
    const whole = await sessions.stream(id).end();
    expect(whole.output()).toBe(LINES);
    expect(whole.events.filter(({ type }) => type === 'turn_start')).toHaveLength(1);
    expect((await sessions.turns(id)).map(({ status }) => status)).toEqual(['failed']);
  });

  it('many times over, while it floods, loses and repeats nothing', async () => {
    const id = await sessions.create(
      'for i in $(seq 20); do seq -f "$i-%.0f" 2000; echo é >&2; sleep 0.3; done',
    );
    for (let round = 0; round < 2; round += 1) {
      await sessions
        .stream(id)
        .until(({ received }) => received > 50_000 * (round + 1))
        .then((s) => s.abort());
      await service.kill9();
      await again();
    }
    const stream = await sessions.stream(id).end();
    const expected = Array.from({ length: 20 }, (_, i) =>
      Array.from({ length: 2000 }, (__, j) => `${i + 1}-${j + 1}\n`).join(''),
    ).join('');
    expect(stream.output('stdout') === expected).toBe(true);
    expect(stream.output('stderr')).toBe('é\n'.repeat(20));
    expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
  });

  it('while the turn ends without it, is told how', async () => {
    const id = await sessions.create('sleep 2; echo late; exit 5');
    await sessions
      .stream(id)
      .until((s) => s.stages().includes('runtime_start started'))
      .then((s) => s.abort());
    await eventually(async () => (await runningOf(service)).length > 0, 'the turn to run');
    await service.kill9();
    await eventually(async () => (await runningOf(service)).length === 0, 'the turn to end');
    await again();
    const stream = await sessions.stream(id).end();
    expect(stream.output()).toBe('late\n');
    expect(stream.last).toMatchObject({ type: 'exit', code: 5 });
  });

  it('between two turns keeps the sandbox', async () => {
    const id = await sessions.completed('echo kept > file');
    await service.kill9();
    await again();
    await sessions.prompt(id, 'cat file');
    expect((await sessions.stream(id).end()).output()).toBe('kept\n');
  });

  it('and of the supervisor ends the turn in an error', async () => {
    const id = await sessions.create('echo up; sleep 600');
    await sessions
      .stream(id)
      .until((s) => s.output() === 'up\n')
      .then((s) => s.abort());
    await service.kill9();
    await killSupervisors(service);
    // Locally by itself; in a container or machine, which stays, when somebody asks how it went.
    if (!onDocker() && !onSprites()) await nothingRuns();
    await again();
    const stream = await sessions.stream(id).end();
    expect(stream.output()).toBe('up\n');
    expect(stream.last).toMatchObject({ type: 'error', message: expect.stringContaining('lost') });
    await nothingRuns();
  });
});

describe('SIGTERM', () => {
  it('ends streams between frames, leaves the turn alone, and the next service goes on at once', async () => {
    const id = await sessions.create(TWENTY);
    const before = sessions.stream(id);
    await before.until(withLine(4));
    const stopped = service.stop();
    await before.cut();
    await stopped;
    expect(before.events.some(({ type }) => ['exit', 'error', 'terminated'].includes(type))).toBe(
      false,
    );
    expect((await runningOf(service)).length).toBeGreaterThan(0);
    expect(existsSync(dataDir)).toBe(true);
    await again();
    const after = await sessions.stream(id, { lastEventId: before.events.at(-1)?.id ?? 0 }).end();
    expect(before.output() + after.output()).toBe(LINES);
    expect(after.last).toMatchObject({ type: 'exit', code: 0 });
  });

  it('of many sessions in all their states interrupts none', async () => {
    const ids = await Promise.all(
      Array.from({ length: 12 }, () =>
        sessions.create('for i in $(seq 5); do echo $i; sleep 0.1; done'),
      ),
    );
    await sessions
      .stream(ids[0] ?? '')
      .until((s) => s.events.some(({ type }) => type === 'output'))
      .then((s) => s.abort());
    await service.stop();
    await again();
    for (const id of ids) {
      const stream = await sessions.stream(id).end();
      expect(stream.output()).toBe('1\n2\n3\n4\n5\n');
      expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
    }
  });
});

describe('the database', () => {
  it('whose connections are cut again and again loses nothing', async () => {
    const id = await sessions.create(TWENTY);
    const stream = sessions.stream(id);
    await stream.until(withLine(2));
    for (let round = 0; round < 8; round += 1) {
      await query(
        service.databaseUrl,
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()`,
      );
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
    await stream.end();
    expect(stream.output()).toBe(LINES);
    expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
    expect(service.logs()).not.toMatch(/unhandled|uncaught/i);
  });

  it('that is away makes 503s, and is found again by itself', async () => {
    const id = await sessions.create(TWENTY);
    const stream = sessions.stream(id);
    await stream.until(withLine(2));
    const name = new URL(service.databaseUrl).pathname.slice(1);
    const admin = process.env.TEST_POSTGRES_URL ?? '';
    await query(admin, `ALTER DATABASE ${name} ALLOW_CONNECTIONS false`);
    try {
      await query(
        admin,
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`,
        [name],
      );
      expect((await service.http.get('/healthz')).status).toBe(200);
      for (const path of ['/readyz', '/sessions', `/sessions/${id}`, '/agents']) {
        const { status, body } = await service.http.get(path);
        expect([path, status, typeof body.detail]).toEqual([path, 503, 'string']);
      }
      // Longer than a lease.
      await new Promise((resolve) => setTimeout(resolve, 3000));
    } finally {
      await query(admin, `ALTER DATABASE ${name} ALLOW_CONNECTIONS true`);
    }
    await eventually(
      async () => (await service.http.get('/readyz')).status === 200,
      'the service to be ready',
    );
    await stream.end();
    expect(stream.output()).toBe(LINES);
    expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
    expect((await sessions.stream(id).end()).output()).toBe(LINES);
  });
});

describeWith(['sandboxes with software'], 'a setup that is interrupted', () => {
  beforeAll(() => prepareSoftware(), ROOTFS_TIMEOUT_MS);

  it('is made again, and its stages are told once', async () => {
    const environment_id = await sessions.createEnvironment({
      setup_script: 'echo x >> ~/tries; sleep 2; echo ready > ~/made',
    });
    const id = await sessions.create('cat ~/made; wc -l < ~/tries', { environment_id });
    await sessions
      .stream(id)
      .until((s) => s.stages().includes('provision_setup started'))
      .then((s) => s.abort());
    await eventually(async () => (await runningOf(service)).length > 0, 'the script to run');
    await new Promise((resolve) => setTimeout(resolve, 500));
    await service.kill9();
    await again();
    const stream = await sessions.stream(id).end();
    expect(stream.stages()).toEqual([
      ...['create_sprite', 'env_file', 'provision_setup'].flatMap((name) => [
        `${name} started`,
        `${name} done`,
      ]),
      'runtime_start started',
    ]);
    expect(stream.output()).toMatch(/^ready\n[12]\n$/);
  });
});
