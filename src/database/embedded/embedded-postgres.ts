import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from 'pg';
import { BoundedLog } from './bounded-log.js';
import { clusterPath, ensureCluster, readPassword } from './cluster.js';
import { asDataDirError, prepareDataDir } from './data-dir.js';
import { hasCode } from './data-dir-error.js';
import { chooseRunner } from './program-runner.js';
import { shutDownServer } from './server-processes.js';
import { DATABASE, forgetServerUrl, serverUrl } from './server-url.js';
import { launchServer, type ServerOptions } from './server.js';
import type { Durability } from './settings.js';

const CONNECT_TIMEOUT_MS = 5_000;
const RESTART_DELAYS_MS = [0, 250, 1_000, 2_000, 5_000];
const STABLE_AFTER_MS = 60_000;

export interface EmbeddedPostgresOptions {
  /** The service's data folder; the cluster is its subfolder `postgres`. Created when missing. */
  dataDir: string;
  /** Takes one line for the operator at a time. */
  log: (line: string) => void;
  /** Gives the start up; nothing is left running then. */
  signal?: AbortSignal;
  /** `none` gives up surviving a power cut for speed: for tests. Default `full`. */
  durability?: Durability;
}

export interface EmbeddedPostgres {
  /** Connection URL of the service's database; a Unix socket that only this user (or root) reaches. */
  readonly url: string;
  /** Shuts the server down: fast, and after 20 seconds at once. Calling it again waits for the same. */
  stop(): Promise<void>;
}

/**
 * Runs PostgreSQL on `dataDir` for this process, creating the cluster and the database when they
 * are not there yet. The caller holds the lock of the folder (`lockDataDir`).
 *
 * A server that an earlier service left behind is shut down cleanly first. This one ends by itself
 * when this process dies, even by kill -9; if it dies itself, it is started again under the same
 * URL.
 *
 * @throws DataDirError with one line for the operator when the folder or what is in it does not do
 */
export async function startEmbeddedPostgres(
  options: EmbeddedPostgresOptions,
): Promise<EmbeddedPostgres> {
  const { log, signal, durability = 'full' } = options;
  const dataDir = await prepareDataDir(options.dataDir);
  const cluster = clusterPath(dataDir);
  let serverLog: BoundedLog | undefined;
  try {
    const runner = await chooseRunner(cluster);
    const password = await ensureCluster(dataDir, runner, durability, signal);
    await shutDownServer(cluster);
    serverLog = new BoundedLog(join(dataDir, 'postgres.log'));
    const server = new SupervisedServer({ cluster, runner, log: serverLog, durability }, log);
    await server.start(signal);
    try {
      await ensureDatabase(serverUrl(cluster, password, 'postgres'));
    } catch (error) {
      await server.stop();
      throw error;
    }
    return { url: serverUrl(cluster, password), stop: () => server.stop() };
  } catch (error) {
    serverLog?.close();
    throw asDataDirError(dataDir, error);
  }
}

/**
 * Finds the server that a running service has on `dataDir`.
 *
 * @returns its connection URL, or undefined when none is running
 * @throws DataDirError when the folder belongs to somebody else
 */
export async function findEmbeddedPostgres(dataDir: string): Promise<{ url: string } | undefined> {
  const cluster = clusterPath(dataDir);
  const password = await readPassword(cluster);
  if (password === undefined) return undefined;
  const url = serverUrl(cluster, password);
  return (await answers(url)) ? { url } : undefined;
}

/** One postmaster after another on the same cluster, until it is stopped. */
class SupervisedServer {
  private readonly stopped = new AbortController();
  private postmaster?: ChildProcess;
  private supervision: Promise<void> = Promise.resolve();
  private stopping?: Promise<void>;

  constructor(
    private readonly options: ServerOptions,
    private readonly report: (line: string) => void,
  ) {}

  async start(signal?: AbortSignal): Promise<void> {
    this.supervision = this.supervise(await this.launch(signal));
  }

  stop(): Promise<void> {
    this.stopping ??= this.shutDown();
    return this.stopping;
  }

  private async launch(signal?: AbortSignal): Promise<{ exit: Promise<unknown[]> }> {
    this.postmaster = await launchServer(this.options, signal);
    return { exit: once(this.postmaster, 'exit') };
  }

  private async shutDown(): Promise<void> {
    this.stopped.abort();
    this.postmaster?.ref();
    await shutDownServer(this.options.cluster);
    await this.supervision;
    forgetServerUrl(this.options.cluster);
    this.options.log.close();
  }

  private async supervise(server: { exit: Promise<unknown[]> }): Promise<void> {
    const { signal } = this.stopped;
    let { exit } = server;
    let since = Date.now();
    for (let failures = 0; ; failures += 1) {
      const [code, killedBy] = await exit;
      if (signal.aborted) return;
      if (Date.now() - since > STABLE_AFTER_MS) failures = 0;
      this.report(`PostgreSQL ended unexpectedly (${String(killedBy ?? code)}), starting it again`);
      try {
        await delay(RESTART_DELAYS_MS[Math.min(failures, RESTART_DELAYS_MS.length - 1)], null, {
          signal,
        });
        await shutDownServer(this.options.cluster);
        ({ exit } = await this.launch(signal));
        since = Date.now();
      } catch (error) {
        if (signal.aborted) return;
        exit = Promise.resolve([error instanceof Error ? error.message : String(error)]);
      }
    }
  }
}

/** The database is made at the first start; a crash between the cluster and it is made good here. */
async function ensureDatabase(maintenanceUrl: string): Promise<void> {
  const client = new Client({ connectionString: maintenanceUrl });
  await client.connect();
  try {
    const found = await client.query('SELECT FROM pg_database WHERE datname = $1', [DATABASE]);
    if (found.rowCount === 0) await client.query(`CREATE DATABASE ${DATABASE}`);
  } finally {
    await client.end();
  }
}

async function answers(url: string): Promise<boolean> {
  const deadline = Date.now() + CONNECT_TIMEOUT_MS;
  for (;;) {
    const error = await tryConnect(url);
    if (error === undefined) return true;
    if (hasCode(error, 'ENOENT', 'ECONNREFUSED', 'ECONNRESET')) return false;
    // 57P03 it starts or stops, 3D000 the service has yet to create its database.
    if (!hasCode(error, '57P03', '3D000') || Date.now() > deadline) throw error;
    await delay(50);
  }
}

async function tryConnect(url: string): Promise<unknown> {
  const client = new Client({
    connectionString: url,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  });
  try {
    await client.connect();
    return undefined;
  } catch (error) {
    return error;
  } finally {
    await client.end().catch(() => undefined);
  }
}
