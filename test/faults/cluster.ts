import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Database } from './database.js';
import { type Role, ROOT, ServiceProcess } from './service-process.js';

export const LEASE_SECONDS = 3;

/** Real processes of the service on one database and one data folder, each with a proxy of its own. */
export class Cluster {
  readonly folder: string;
  readonly database: Database;
  readonly processes: readonly ServiceProcess[];
  token = '';
  readonly log: string[] = [];

  private constructor(folder: string, database: Database, processes: readonly ServiceProcess[]) {
    this.folder = folder;
    this.database = database;
    this.processes = processes;
  }

  /** Starts everything at once on an empty database, and makes a user without a limit to speak of. */
  static async start(options: {
    api: number;
    workers: number;
    all?: number;
    env?: Record<string, string | undefined>;
  }): Promise<Cluster> {
    const folder = await realpath(await mkdtemp(join(tmpdir(), 'faults-')));
    const log: string[] = [];
    let database: Database | undefined;
    const processes: ServiceProcess[] = [];
    try {
      database = await Database.start(join(folder, 'database'), (line) => log.push(line));
      const { socketPath } = database;
      const started = database;
      const add = async (role: Role, count: number): Promise<void> => {
        for (let number = 1; number <= count; number += 1) {
          processes.push(
            await ServiceProcess.prepare({
              name: `${role}-${number}`,
              role,
              socketPath,
              databaseUrl: (port) => started.urlBy(port),
              logDir: join(folder, 'logs'),
              env: {
                HOST: '127.0.0.1',
                DATA_DIR: join(folder, 'data'),
                LEASE_SECONDS: String(LEASE_SECONDS),
                HEARTBEAT_SECONDS: '2',
                SESSION_LIMIT: '100000',
                WORKER_CONCURRENCY: '64',
                ENCRYPTION_KEYS: undefined,
                METRICS_PORT: undefined,
                ...options.env,
              },
            }),
          );
        }
      };
      await add('all', options.all ?? 0);
      await add('api', options.api);
      await add('worker', options.workers);
      const cluster = new Cluster(folder, database, processes);
      for (const process_ of processes) process_.spawn();
      for (const process_ of processes) {
        if (!(await process_.ready()))
          throw new Error(`${process_.name} did not get ready:\n${process_.output}`);
      }
      cluster.token =
        processes.map(({ output }) => /ast_\w+/.exec(output)?.[0]).find(Boolean) ?? '';
      if (cluster.token === '') throw new Error('no process told the first token');
      return cluster;
    } catch (error) {
      for (const process_ of processes) await process_.dispose();
      await database?.stop();
      await rm(folder, { recursive: true, force: true });
      throw error;
    }
  }

  get apis(): ServiceProcess[] {
    return this.processes.filter(({ role }) => role !== 'worker');
  }

  get workers(): ServiceProcess[] {
    return this.processes.filter(({ role }) => role !== 'api');
  }

  get sandboxes(): string {
    return join(this.folder, 'data', 'sandboxes');
  }

  /** The kernel users that this cluster's sandboxes run as; `undefined` where they run as this one's. */
  async users(): Promise<{ first: number; count: number } | undefined> {
    if (process.geteuid?.() !== 0) return undefined;
    const build = join(ROOT, 'dist/src/sandboxes/local/user-pool.js');
    const { firstUserOf } = (await import(pathToFileURL(build).href)) as {
      firstUserOf(stateDir: string): number;
    };
    return { first: firstUserOf(this.sandboxes), count: 4096 };
  }

  /** Heals what is broken, thaws what is frozen and starts what is down. */
  async heal(): Promise<void> {
    for (const process_ of this.processes) {
      process_.proxy.heal();
      if (process_.frozen) process_.signal('SIGCONT');
    }
    await this.database.query('SELECT 1');
    for (const process_ of this.processes) {
      for (let attempt = 0; !(await process_.ready(20_000)); attempt += 1) {
        if (attempt === 5)
          throw new Error(`${process_.name} does not come back:\n${process_.output}`);
        process_.spawn();
      }
    }
  }

  /** @param keep leaves the folder with its logs. */
  async stop(keep = false): Promise<void> {
    await Promise.all(this.processes.map((process_) => process_.dispose()));
    await this.database.stop();
    if (!keep) await rm(this.folder, { recursive: true, force: true });
  }
}
