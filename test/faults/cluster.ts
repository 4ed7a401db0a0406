import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { generateAccessToken, hashAccessToken } from '../../src/auth/access-token.js';
import { Database } from './database.js';
import { processesOf, type Users } from './processes.js';
import { type Role, ROOT, ServiceProcess } from './service-process.js';

export const LEASE_SECONDS = 3;
/** Hosts that share no folder need the same ring. */
const ENCRYPTION_KEYS = `faults:${Buffer.alloc(32, 'faults').toString('base64')}`;

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
    /** Every process has a data folder of its own, as on a host of its own. */
    ownFolders?: boolean;
    env?: Record<string, string | undefined>;
    /** The folder of another build that the processes start with. */
    project?: string | undefined;
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
                DATA_DIR: dataDirOf(folder, options.ownFolders ? `${role}-${number}` : undefined),
                LEASE_SECONDS: String(LEASE_SECONDS),
                HEARTBEAT_SECONDS: '2',
                SESSION_LIMIT: '100000',
                WORKER_CONCURRENCY: '64',
                ENCRYPTION_KEYS: options.ownFolders ? ENCRYPTION_KEYS : undefined,
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
      for (const member of processes) {
        member.project = options.project ?? ROOT;
        member.spawn();
      }
      for (const member of processes) {
        if (!(await member.ready()))
          throw new Error(`${member.name} did not get ready:\n${member.output}`);
      }
      cluster.token = await firstToken(processes);
      return cluster;
    } catch (error) {
      for (const member of processes) await member.dispose();
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
    return join(dataDirOf(this.folder), 'sandboxes');
  }

  /** How many processes run in the sandboxes of a process that has a folder of its own. */
  async processesOf(owner: ServiceProcess | undefined): Promise<number> {
    const sandboxes = join(dataDirOf(this.folder, owner?.name), 'sandboxes');
    return processesOf(sandboxes, await this.users(sandboxes)).length;
  }

  /** The kernel users that sandboxes run as; `undefined` where they run as this one's. */
  async users(sandboxes = this.sandboxes): Promise<Users | undefined> {
    if (process.geteuid?.() !== 0) return undefined;
    const build = join(ROOT, 'dist/src/sandboxes/driver/local/user-pool.js');
    const { firstUserOf } = (await import(pathToFileURL(build).href)) as {
      firstUserOf: (stateDir: string) => number;
    };
    return { first: firstUserOf(sandboxes), count: 4096 };
  }

  /** Makes a user. @returns a token of theirs */
  async createUser(name: string, sessionLimit: number): Promise<string> {
    await this.database.query('INSERT INTO users (name, session_limit) VALUES ($1, $2)', [
      name,
      sessionLimit,
    ]);
    return this.createToken(name);
  }

  async createToken(userName: string): Promise<string> {
    const token = generateAccessToken();
    await this.database.query(
      'INSERT INTO access_tokens (user_id, token_hash) SELECT id, $2 FROM users WHERE name = $1',
      [userName, hashAccessToken(token)],
    );
    return token;
  }

  async revokeToken(token: string): Promise<void> {
    await this.database.query('UPDATE access_tokens SET revoked_at = now() WHERE token_hash = $1', [
      hashAccessToken(token),
    ]);
  }

  /** Heals what is broken, thaws what is frozen and starts what is down. */
  async heal(): Promise<void> {
    for (const member of this.processes) {
      member.proxy.heal();
      if (member.frozen) member.signal('SIGCONT');
    }
    await this.database.query('SELECT 1');
    for (const member of this.processes) {
      for (let attempt = 0; !(await member.ready(20_000)); attempt += 1) {
        if (attempt === 5) throw new Error(`${member.name} does not come back:\n${member.output}`);
        member.spawn();
      }
    }
  }

  /** @param keep leaves the folder with its logs. */
  async stop(keep = false): Promise<void> {
    await Promise.all(this.processes.map((member) => member.dispose()));
    await this.database.stop();
    // A supervisor that is about to end may still write its record.
    const retries = { maxRetries: 20, retryDelay: 100 };
    if (!keep) await rm(this.folder, { recursive: true, force: true, ...retries });
  }
}

/** Of processes that start together on an empty database one makes the first user, and tells the token once. */
async function firstToken(processes: readonly ServiceProcess[]): Promise<string> {
  for (const giveUpAt = Date.now() + 60_000; Date.now() < giveUpAt; await delay(20)) {
    const tokens = processes.flatMap(({ output }) => /ast_\w+/.exec(output)?.[0] ?? []);
    if (tokens.length > 1) throw new Error('several processes told a first token');
    if (tokens[0] !== undefined) return tokens[0];
  }
  throw new Error('no process told the first token');
}

function dataDirOf(folder: string, name = 'shared'): string {
  return join(folder, 'data', name);
}
