import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from 'pg';
import { BoundedLog, launchServer, type ServerOptions } from './server.js';
import { shutDownServer } from './server-processes.js';
import { type Durability, DATABASE, forgetServerUrl, serverUrl } from './server-settings.js';
import { clusterPath, ensureCluster, readPassword } from './cluster.js';
import { hasCode } from '../../common/missing-file.js';
import { asDataDirError, prepareDataDir } from './data-dir.js';
import { chooseRunner } from './program-runner.js';

const CONNECT_TIMEOUT_MS = 5_000;
const RESTART_DELAYS_MS = [0, 250, 1_000, 2_000, 5_000];
const STABLE_AFTER_MS = 60_000;

export interface EmbeddedPostgresOptions {
  /** The service's data folder; the cluster is its subfolder `postgres`. Created if missing. */
  dataDir: string;
  /** Receives one line for the operator at a time. */
  log: (line: string) => void;
  /** Aborts the start; no process is left running. */
  signal?: AbortSignal;
  /** `none` trades durability in a power cut for speed, for tests. Default `full`. */
  durability?: Durability;
}

export interface EmbeddedPostgres {
  /** Connection URL of the service's database: a Unix socket that only this user (or root) can reach. */
  readonly url: string;
  /** Shuts the server down: fast, and immediately after 20 seconds. Calling it again waits for the same shutdown. */
  stop(): Promise<void>;
}

/**
 * Runs PostgreSQL on `dataDir` for this process, creating the cluster and the database if needed. The caller must hold
 * the lock of the folder (`lockDataDir`).
 *
 * First shuts down a server that an earlier service left behind. The new server ends when this process dies, even by
 * kill -9. If the server dies, it is restarted with the same URL.
 *
 * @throws DataDirError with a one-line message for the operator if the folder or its contents are unusable
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
 * Finds the PostgreSQL server of a running service on `dataDir`.
 *
 * @returns its connection URL, or undefined if none is running
 * @throws DataDirError if the folder belongs to another user
 */
export async function findEmbeddedPostgres(dataDir: string): Promise<{ url: string } | undefined> {
  const cluster = clusterPath(dataDir);
  const password = await readPassword(cluster);
  if (password === undefined) return undefined;
  const url = serverUrl(cluster, password);
  return (await answers(url)) ? { url } : undefined;
}

/** Runs the postmaster, and restarts it if it exits, until it is stopped. */
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
      this.report(`PostgreSQL ended unexpectedly (${String(killedBy ?? code)}); restarting it`);
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

/** Creates the database on the first start. A crash may have left a cluster without it. */
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
    // 57P03: the server is starting or stopping. 3D000: the service has not created its database yet.
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
