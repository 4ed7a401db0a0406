import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import type { FastifyInstance } from 'fastify';
import { Accounts } from '../../src/auth/accounts.js';
import { loadConfig } from '../../src/config/app-config.js';
import { createApp } from '../../src/create-app.js';
import type { SandboxDriver } from '../../src/sandboxes/driver/sandbox-driver.js';
import { DRIVERS } from '../../src/sandboxes/sandboxes.module.js';
import { eventually } from '../support/sessions.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';

/** How long a call takes to end after its signal has fired. */
const SLOW_MS = 300;

let database: TestDatabase;
let dataDir: string;
let app: INestApplication | undefined;

beforeEach(async () => {
  database = await createTestDatabase();
  dataDir = mkdtempSync(join(tmpdir(), 'driver-'));
});
afterEach(async () => {
  await app?.close();
  app = undefined;
  jest.restoreAllMocks();
  await database.drop();
  rmSync(dataDir, { recursive: true, force: true });
});

/** A driver whose calls last until they are aborted, and a little longer. */
class SlowDriver {
  /** The calls that have not ended. */
  readonly running: string[] = [];
  /** What was running when the driver was closed, once for each time. */
  readonly closed: string[][] = [];
  private created = 0;

  readonly driver: SandboxDriver = {
    name: 'local',
    layout: () => ({ home: '/home', workspace: '/workspace' }),
    preflight: async () => undefined,
    limits: () => Promise.reject(new Error('not used')),
    // That of the first session succeeds, and shows the warm pool what to make.
    create: async ({ signal }) => {
      this.created += 1;
      if (this.created > 1) await this.last('create', signal);
    },
    packageHosts: async () => [],
    restrictNetwork: async () => undefined,
    writeFiles: async () => undefined,
    async *files() {
      // There are none.
    },
    runScript: async () => ({ exitCode: 0, outputTail: '' }),
    providePrograms: async () => undefined,
    prepareShared: ({ signal }) => this.last('prepareShared', signal),
    gateway: async () => ({ url: 'http://127.0.0.1', identifies: true }),
    launch: async () => undefined,
    follow: ({ signal }) => this.follow(signal),
    kill: async () => undefined,
    discardSpool: async () => undefined,
    exists: async () => 'yes',
    destroy: async () => undefined,
    list: ({ signal }) => this.last('list', signal),
    close: async () => void this.closed.push([...this.running]),
  };

  private async *follow(signal: AbortSignal): AsyncGenerator<never> {
    yield await this.last('follow', signal);
  }

  private async last(call: string, signal: AbortSignal): Promise<never> {
    this.running.push(call);
    if (!signal.aborted) {
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
    }
    await delay(SLOW_MS);
    this.running.splice(this.running.indexOf(call), 1);
    throw signal.reason;
  }
}

test('the driver is closed once, after the worker, the pool, the reaper and the preparation have stopped', async () => {
  const slow = new SlowDriver();
  jest.spyOn(DRIVERS, 'local').mockResolvedValue(slow.driver);
  const config = loadConfig({
    DATABASE_URL: database.url,
    DATA_DIR: dataDir,
    CACHE_DIR: join(dataDir, 'cache'),
    ENCRYPTION_KEYS: `test:${Buffer.alloc(32, 1).toString('base64')}`,
    WARM_POOL: '1',
    PREPARE_SANDBOXES: 'on',
  });
  app = await createApp(config, database.url);
  await app.init();
  const token = (await app.get(Accounts).ensureFirstUser())?.token ?? '';
  const fastify = app.getHttpAdapter().getInstance() as FastifyInstance;
  const post = async (url: string, body: object) => {
    const headers = { authorization: `Bearer ${token}`, 'idempotency-key': randomUUID() };
    const response = await fastify.inject({ method: 'POST', url, headers, payload: body });
    return response.json<{ id: string }>();
  };
  const agent = await post('/agents', { name: 'a', provider: 'shell', model: 'shell/bash' });
  await post('/sessions', { agent_id: agent.id, prompt: 'true' });

  const calls = ['create', 'follow', 'list', 'prepareShared'];
  await eventually(
    () => slow.running.toSorted().join() === calls.join(),
    () => `all of ${calls.join()} to run, not ${slow.running.join()}`,
  );
  await app.close();
  app = undefined;
  expect(slow.closed).toEqual([[]]);
});
