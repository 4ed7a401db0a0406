import { readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Cluster } from '../faults/cluster.js';
import { deleteAll } from '../faults/chaos.js';
import { leftovers } from '../faults/leftovers.js';
import { processesOf } from '../faults/processes.js';
import { Random } from '../faults/random.js';
import {
  DOCKER_HOST,
  leftovers as leftOnEngine,
  removeInstallation,
  sandboxImage,
} from '../support/docker-engine.js';
import { ensureInstallation } from '../../src/database/installation.js';
import { prepareSoftware, SOFTWARE_CACHE } from '../support/software.js';
import type { Driver } from './attack.js';
import { hostRemains, type HostState, hostState, sweep } from './host-state.js';

/** Small limits, so that everybody reaches them soon. */
const LIMITS = {
  SANDBOX_MEMORY: '256MiB',
  SANDBOX_DISK: '128MiB',
  SANDBOX_PROCESSES: '128',
  OUTPUT_LIMIT: '16MiB',
  WORKER_CONCURRENCY: '24',
  STORED_BYTES_PER_USER: '6MiB',
} as const;
const MALLORY_SESSIONS = 40;
const CLEAR_LIMIT_MS = 120_000;
const END_LIMIT_MS = 30_000;

/** A service under attack: its processes, the users, and what the host had before. */
export class Stage {
  readonly cluster: Cluster;
  readonly driver: Driver;
  readonly mallory: { token: string; hoarderToken: string; spareTokens: string[] };
  private readonly before: HostState;

  private constructor(options: Pick<Stage, 'cluster' | 'driver' | 'mallory'>, before: HostState) {
    this.cluster = options.cluster;
    this.driver = options.driver;
    this.mallory = options.mallory;
    this.before = before;
  }

  static async open(options: {
    driver: Driver;
    /** One process for requests and one for turns, in place of one for both. */
    split: boolean;
    software: boolean;
  }): Promise<Stage> {
    const { driver, split, software } = options;
    const onDocker = driver === 'docker';
    if (software && !onDocker) await prepareSoftware();
    const before = hostState();
    const cluster = await Cluster.start({
      api: split ? 1 : 0,
      workers: split ? 1 : 0,
      all: split ? 0 : 1,
      env: {
        ...LIMITS,
        CACHE_DIR: SOFTWARE_CACHE,
        SANDBOX_DRIVER: driver,
        ...(onDocker && { DOCKER_HOST, SANDBOX_IMAGE: await sandboxImage() }),
        // Never used: a program of the attackers stands in for the agent.
        ANTHROPIC_API_KEY: 'sk-no-key-at-all',
        LOG_FORMAT: 'json',
      },
    });
    try {
      const token = await cluster.createUser('mallory', MALLORY_SESSIONS);
      const hoarderToken = await cluster.createUser('hoarder', MALLORY_SESSIONS);
      const spareTokens = [];
      for (let count = 0; count < 40; count += 1)
        spareTokens.push(await cluster.createToken('mallory'));
      return new Stage({ cluster, driver, mallory: { token, hoarderToken, spareTokens } }, before);
    } catch (error) {
      await cluster.stop();
      throw error;
    }
  }

  get url(): string {
    return this.cluster.apis[0]?.url ?? '';
  }

  /** Why the service is not well; `undefined` when it is. */
  async illness(): Promise<string | undefined> {
    for (const member of this.cluster.processes) {
      if (!member.running) return `${member.name} has ended: ${member.output.slice(-600)}`;
      if (!(await member.isReady())) return `${member.name} is not ready`;
    }
    return undefined;
  }

  /** The most memory that each process of the service has had; MiB. */
  memoryPeaks(): Record<string, number> {
    return Object.fromEntries(
      this.cluster.processes.map(({ name, pid }) => [name, pid === undefined ? 0 : peakOf(pid)]),
    );
  }

  /** Deletes every session of everybody. @returns what is left then. */
  async clear(): Promise<string[]> {
    const random = new Random(1);
    for (const token of [this.cluster.token, this.mallory.token]) {
      const signal = AbortSignal.timeout(CLEAR_LIMIT_MS);
      await deleteAll({ cluster: { apis: this.cluster.apis, token }, random, signal });
    }
    const left = await leftovers(this.cluster, 60_000);
    if (this.driver === 'docker') left.push(...(await leftOnEngine(await this.installation())));
    return left;
  }

  private async installation(): Promise<string> {
    const { database } = this.cluster;
    return (await ensureInstallation({ query: ({ text }) => database.query(text) })).id;
  }

  /**
   * Ends everything, also agents: they outlive the service, and one that is ill can clear nothing.
   * @returns what the host still had of it, besides files
   */
  async close(keepLogs: boolean): Promise<string[]> {
    const { cluster, driver } = this;
    const users = await cluster.users();
    if (driver === 'docker')
      await removeInstallation(await this.installation()).catch(() => undefined);
    await cluster.stop(true);
    const running = (): number[] => processesOf(cluster.sandboxes, users);
    // A program with which the service looked at the host may still be about to end.
    for (const giveUpAt = Date.now() + END_LIMIT_MS; running().length > 0;) {
      if (Date.now() > giveUpAt) break;
      await delay(100);
    }
    const remains = [
      ...running().map((pid) => `process ${pid}`),
      ...hostRemains(this.before, cluster.folder),
    ];
    await sweep(cluster.folder, running);
    if (!keepLogs) await rm(cluster.folder, { recursive: true, force: true });
    return remains;
  }
}

function peakOf(pid: number): number {
  try {
    const status = readFileSync(join('/proc', String(pid), 'status'), 'utf8');
    return Math.round(Number(/^VmHWM:\s+(\d+)/m.exec(status)?.[1] ?? 0) / 1024);
  } catch {
    return 0;
  }
}
