import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import type { Socket } from 'node:net';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from 'pg';
import { generateAccessToken, hashAccessToken } from '../../src/auth/access-token.js';
import { ensureInstallation } from '../../src/database/installation.js';
import { DOCKER_HOST, removeInstallation, sandboxImage } from './docker-engine.js';
import { HttpClient } from './http-client.js';
import { remember } from './installation-notes.js';
import { PATIENCE_MS } from './patience.js';
import { createTestDatabase } from './test-database.js';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const MAIN = join(ROOT, 'dist', 'src', 'main.js');
const STOP_LIMIT_MS = 90_000;
/** One ring for all, so that several services can share a database. */
export const ENCRYPTION_KEYS = `test:${Buffer.alloc(32, 'test').toString('base64')}`;
const BASE_ENV = {
  PORT: '0',
  HOST: '127.0.0.1',
  ENCRYPTION_KEYS,
  // What Jest runs with is not for the service.
  NODE_OPTIONS: undefined,
  NODE_ENV: undefined,
  // Only the programs that tests install may need the proxy of the host.
  EGRESS_PROXY: 'off',
};

export interface ServiceOptions {
  /** Added to the environment of the process; `undefined` takes a variable away. */
  env?: Record<string, string | undefined>;
  /** A command that runs the program and the arguments that follow it. Default: none. */
  through?: readonly string[];
  /** Default: a fresh migrated database that is dropped by `stop()`. */
  databaseUrl?: string;
  /** Default: a fresh folder that is removed by `stop()`. */
  dataDir?: string;
}

/** What services have written, by their addresses: the environment of the tests shows it when a test fails. */
const shownOnFailure = new Map<string, () => string>();
Object.assign(globalThis, { serviceLogs: shownOnFailure });

/** The built service as a real process. */
export interface Service {
  /** Where it listens, without a trailing slash. */
  readonly url: string;
  readonly databaseUrl: string;
  readonly dataDir: string;
  readonly pid: number;
  /** A token of the user that was made for this service. */
  readonly token: string;
  readonly userId: string;
  /** Speaks with {@link token}. */
  readonly http: HttpClient;
  /** Everything that it has written so far. */
  logs(): string;
  /** Another user of the same database. */
  createUser(options?: { sessionLimit?: number }): Promise<TestUser>;
  /** SIGTERM, and what was made for it goes. Fails when it does not end by itself or not with 0. */
  stop(): Promise<void>;
  /** SIGKILL; resolves when it is gone. Its database and folder stay until `stop()`. */
  kill9(): Promise<void>;
}

export interface TestUser {
  userId: string;
  token: string;
  http: HttpClient;
}

/**
 * Starts `dist/src/main.js` on a free port.
 * @throws Error with the process's output when it does not come to listen.
 */
export async function startService(options: ServiceOptions = {}): Promise<Service> {
  const database = options.databaseUrl === undefined ? await createTestDatabase() : undefined;
  const databaseUrl = options.databaseUrl ?? database?.url ?? '';
  const dataDir = options.dataDir ?? (await mkdtemp(join(tmpdir(), 'service-')));
  // Whole suites run over another driver when the environment says so.
  const given = { ...process.env, ...options.env };
  const onDocker = given['SANDBOX_DRIVER'] === 'docker';
  const cleanUp = async (): Promise<void> => {
    // As with the folder that holds local ones: whoever brought the database may want its sandboxes.
    if (onDocker && database !== undefined) {
      await removeInstallation(await installationOf(databaseUrl));
    }
    if (options.dataDir === undefined) await rm(dataDir, { recursive: true, force: true });
    await database?.drop();
  };
  if (onDocker && (given['DOCKER_HOST'] ?? DOCKER_HOST) === DOCKER_HOST) {
    await remember(await installationOf(databaseUrl), DOCKER_HOST);
  }
  const { child, logs, exited } = run(
    {
      ...(onDocker && { SANDBOX_IMAGE: given['SANDBOX_IMAGE'] ?? (await sandboxImage()) }),
      ...options.env,
      DATABASE_URL: databaseUrl,
      DATA_DIR: dataDir,
    },
    options.through,
  );
  try {
    const url = await listening(child, logs);
    shownOnFailure.set(url, logs);
    const hide = (): unknown => shownOnFailure.delete(url);
    exited.then(hide, hide);
    const createUser: Service['createUser'] = async ({ sessionLimit } = {}) => {
      const user = await insertUser(databaseUrl, sessionLimit);
      return { ...user, http: new HttpClient(url, user.token) };
    };
    return {
      ...(await createUser()),
      url,
      databaseUrl,
      dataDir,
      pid: child.pid ?? 0,
      logs,
      createUser,
      kill9: async () => {
        child.kill('SIGKILL');
        await exited;
      },
      stop: async () => {
        try {
          await terminate(child, logs, exited);
        } finally {
          await cleanUp();
        }
      },
    };
  } catch (error) {
    child.kill('SIGKILL');
    await exited;
    await cleanUp();
    throw error;
  }
}

type Exit = Promise<{ code: number | null; signal: NodeJS.Signals | null }>;

function run(env: Record<string, string | undefined>, through: readonly string[] = []) {
  const [program, ...args] = [...through, process.execPath, '--enable-source-maps', MAIN];
  const child = spawn(program, args, {
    cwd: ROOT,
    env: { ...process.env, ...BASE_ENV, ...env },
    // The channel tells the service when the test run is gone, however it went: it then stops by itself.
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  // A test that fails before it stops its service must not keep the run from ending.
  child.unref();
  child.channel?.unref();
  let text = '';
  for (const stream of [child.stdout, child.stderr]) {
    (stream as Socket | null)?.unref();
    stream?.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
  }
  const exited: Exit = new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve({ code, signal }));
  });
  return { child, logs: () => text, exited };
}

/** The service says where it listens when it does. */
async function listening(child: ChildProcess, logs: () => string): Promise<string> {
  return new Promise((resolve, reject) => {
    const fail = (why: string) => reject(new Error(`The service ${why}:\n${logs()}`));
    const timer = setTimeout(() => fail('did not start in time'), PATIENCE_MS);
    child.once('error', reject);
    child.once('close', (code, signal) => {
      clearTimeout(timer);
      fail(`ended with ${code ?? signal} before it listened`);
    });
    child.stdout?.on('data', () => {
      const url = /Listening on (http:\/\/[^\s"]+)/.exec(logs())?.[1];
      if (url === undefined) return;
      clearTimeout(timer);
      resolve(url.replace(/\/$/, ''));
    });
  });
}

async function terminate(child: ChildProcess, logs: () => string, exited: Exit): Promise<void> {
  if (child.signalCode === 'SIGKILL') return;
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_LIMIT_MS);
  const { code, signal } = await exited;
  clearTimeout(timer);
  if (code !== 0) throw new Error(`The service ended with ${code ?? signal}:\n${logs()}`);
}

async function insertUser(
  databaseUrl: string,
  sessionLimit?: number,
): Promise<{ userId: string; token: string }> {
  const client = new Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    const token = generateAccessToken();
    const { rows } = await client.query<{ id: string }>(
      `INSERT INTO users (name, session_limit) VALUES ('test ' || gen_random_uuid(), $1) RETURNING id`,
      [sessionLimit ?? null],
    );
    const userId = rows[0]?.id ?? '';
    await client.query(`INSERT INTO access_tokens (user_id, token_hash) VALUES ($1, $2)`, [
      userId,
      hashAccessToken(token),
    ]);
    return { userId, token };
  } finally {
    await client.end();
  }
}

/** What the service calls the installation that a database stands for. */
export async function installationOf(databaseUrl: string): Promise<string> {
  const client = new Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    const sql = {
      query: async <Row extends object>({ text }: { text: string }, values?: readonly unknown[]) =>
        (await client.query(text, values && [...values])).rows as Row[],
    };
    return (await ensureInstallation(sql)).id;
  } finally {
    await client.end();
  }
}

/** Runs statements on a service's database. */
export async function query<Row extends object>(
  databaseUrl: string,
  text: string,
  values: unknown[] = [],
): Promise<Row[]> {
  const client = new Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    return (await client.query(text, values)).rows as Row[];
  } finally {
    await client.end();
  }
}
