import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { ENCRYPTION_KEYS } from '../support/service.js';
import { eventually } from '../support/sessions.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';

const LIMIT_MS = 120_000;
const STOP_LIMIT_MS = 90_000;

let database: TestDatabase;
let dataDir: string;
let npm: ChildProcess | undefined;
beforeEach(async () => {
  database = await createTestDatabase();
  dataDir = await mkdtemp(join(tmpdir(), 'npm-scripts-'));
});
afterEach(async () => {
  if (npm?.pid !== undefined && npm.exitCode === null && npm.signalCode === null) {
    process.kill(-npm.pid, 'SIGKILL');
  }
  await rm(dataDir, { recursive: true, force: true });
  await database.drop();
});

/** Runs a script of package.json as a service manager does: npm is the process that it knows. */
async function startByNpm(...script: string[]) {
  let text = '';
  const child = spawn('npm', script, {
    cwd: process.cwd(),
    env: {
      ...process.env,
      PORT: '0',
      HOST: '127.0.0.1',
      LOG_FORMAT: 'json',
      ENCRYPTION_KEYS,
      NODE_OPTIONS: undefined,
      NODE_ENV: undefined,
      DATABASE_URL: database.url,
      DATA_DIR: dataDir,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  npm = child;
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
  }
  // Not the exit: that comes when npm has gone, this when nobody holds its output any more, the service included.
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const url = await eventually(
    () => /Listening on (http:[^\s"]+)/.exec(text)?.[1],
    () => `the service to listen; it said:\n${text}`,
    LIMIT_MS,
  );
  return { pid: child.pid ?? 0, url, closed, said: () => text };
}

const isServed = async (url: string): Promise<boolean> =>
  fetch(`${url}/healthz`).then(
    ({ ok }) => ok,
    () => false,
  );

/** Expects that all processes exited, and that the log does not report a stop that was cut short. */
async function expectStopped(service: Awaited<ReturnType<typeof startByNpm>>): Promise<void> {
  const timer = new Promise((_resolve, reject) => {
    setTimeout(() => reject(new Error(`still running:\n${service.said()}`)), STOP_LIMIT_MS).unref();
  });
  await Promise.race([service.closed, timer]);
  expect(await isServed(service.url)).toBe(false);
  expect(service.said()).not.toMatch(/Not stopped within|killing it/);
}

it.each([
  ['npm run start:prod', ['run', 'start:prod']],
  ['npm start', ['start']],
])(
  'SIGTERM to %s stops the service',
  async (_name, script) => {
    const service = await startByNpm(...script);
    expect(await isServed(service.url)).toBe(true);
    process.kill(service.pid, 'SIGTERM');
    await expectStopped(service);
  },
  LIMIT_MS + STOP_LIMIT_MS,
);

it(
  'SIGTERM to the whole group of npm run start:prod stops it in order, not at once',
  async () => {
    const service = await startByNpm('run', 'start:prod');
    process.kill(-service.pid, 'SIGTERM');
    await expectStopped(service);
    expect(service.said()).not.toContain('code 1');
  },
  LIMIT_MS + STOP_LIMIT_MS,
);
