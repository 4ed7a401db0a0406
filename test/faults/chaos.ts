import { setTimeout as delay } from 'node:timers/promises';
import { Cluster } from './cluster.js';
import { Faults } from './faults.js';
import { leftovers } from './leftovers.js';
import { Random } from './random.js';
import { Takeovers } from './takeovers.js';
import { type Asking, retry, SessionRun, Tally, type WorkloadOptions } from './workload.js';

export interface ChaosOptions {
  seed: number;
  /** For how long there are faults; the run ends when all sessions that were begun by then have. Seconds. */
  seconds: number;
  /** Sessions at a time. */
  sessions: number;
  readersPerSession: number;
  turnSeconds: readonly [number, number];
  /** Between two faults; milliseconds. */
  pauseMs: readonly [number, number];
  workers?: number;
  log: (line: string) => void;
  /** Leaves the logs of the processes behind when something was wrong. */
  keepLogs?: boolean;
  /** Ends the run early: what was begun is given up, mended and cleared away, and reported. */
  signal?: AbortSignal;
}

export interface ChaosReport {
  tally: Tally;
  faults: Map<string, number>;
  takeovers: Map<string, number[]>;
  orphans: string[];
  /** Sessions that were asked for once and made more than once. */
  duplicates: number;
  seconds: number;
  ok: boolean;
  folder?: string;
}

const FINISH_LIMIT_MS = 180_000;
const LEFTOVERS_LIMIT_MS = 100_000;

/** Many sessions on a cluster that is beaten up, and everything that clients see checked. */
export async function runChaos(options: ChaosOptions): Promise<ChaosReport> {
  const begun = performance.now();
  const random = new Random(options.seed);
  const cluster = await Cluster.start({ api: 2, workers: options.workers ?? 2 });
  let report: ChaosReport | undefined;
  try {
    report = await beat(cluster, random, options);
    report.seconds = (performance.now() - begun) / 1000;
    if (!report.ok && options.keepLogs) report.folder = cluster.folder;
    return report;
  } finally {
    await cluster.stop(report?.folder !== undefined);
  }
}

async function beat(cluster: Cluster, random: Random, options: ChaosOptions): Promise<ChaosReport> {
  const begun = performance.now();
  const limit = AbortSignal.timeout(options.seconds * 1000 + FINISH_LIMIT_MS);
  const giveUp = options.signal ? AbortSignal.any([limit, options.signal]) : limit;
  const calm = new AbortController();
  const tally = new Tally((problem) => {
    options.log(`${((performance.now() - begun) / 1000).toFixed(0)} s: PROBLEM ${problem}`);
  });
  const takeovers = new Takeovers(cluster);
  const faults = new Faults(cluster, random.fork(), takeovers);
  const workload = await prepareWorkload(cluster, random, tally, giveUp, options);

  const striking = faults.run(options.pauseMs, calm.signal);
  const timer = setTimeout(() => calm.abort(), options.seconds * 1000);
  giveUp.addEventListener('abort', () => calm.abort());
  const progress = setInterval(() => {
    options.log(
      `${tally.turns} turns begun, ${sum(faults.counts)} faults, ${tally.problems.length} problems`,
    );
  }, 15_000);
  try {
    const lanes = Array.from({ length: options.sessions }, async (_lane, index) => {
      await delay(index * 50);
      while (!calm.signal.aborted) await new SessionRun(workload).run();
    });
    await Promise.all(lanes).catch((error: unknown) => {
      tally.problem(`sessions that did not end: ${String(error)}`);
    });
  } finally {
    clearTimeout(timer);
    clearInterval(progress);
    calm.abort();
    await striking;
  }
  await takeovers.settle();
  const duplicates = await countDuplicates(cluster, tally);
  options.log('all turns have ended; clearing up');
  await deleteAll({ ...workload, signal: AbortSignal.timeout(FINISH_LIMIT_MS) });
  const orphans = await leftovers(cluster, LEFTOVERS_LIMIT_MS);
  return {
    tally,
    faults: faults.counts,
    takeovers: takeovers.times,
    orphans,
    duplicates,
    seconds: 0,
    ok: tally.problems.length === 0 && orphans.length === 0 && duplicates === 0,
  };
}

export async function prepareWorkload(
  cluster: Cluster,
  random: Random,
  tally: Tally,
  signal: AbortSignal,
  options: Pick<ChaosOptions, 'readersPerSession' | 'turnSeconds'>,
): Promise<WorkloadOptions> {
  const { body } = await retry(
    { cluster, random, signal },
    'POST',
    '/agents',
    { name: 'chaos', provider: 'shell', model: 'shell/bash' },
    [201],
  );
  return {
    cluster,
    random,
    tally,
    signal,
    agentId: String(body['id']),
    turnSeconds: options.turnSeconds,
    readersPerSession: options.readersPerSession,
    restless: true,
  };
}

/** Requests are repeated with their key until they are answered; the database tells whether one was done twice. */
async function countDuplicates(cluster: Cluster, tally: Tally): Promise<number> {
  const [row] = await cluster.database.query<{ sessions: string; turns: string }>(
    'SELECT (SELECT count(*) FROM sessions) AS sessions, (SELECT count(*) FROM turns) AS turns',
  );
  return Number(row?.sessions) - tally.sessions + (Number(row?.turns) - tally.turns);
}

/** Ends and deletes every session through the interface. */
export async function deleteAll(workload: Asking): Promise<void> {
  const { body } = await retry(workload, 'GET', '/sessions', undefined, [200]);
  for (const { id, status } of body['data'] as { id: string; status: string }[]) {
    if (['pending', 'running'].includes(status))
      await retry(workload, 'POST', `/sessions/${id}/terminate`, undefined, [200, 409]);
    await retry(workload, 'DELETE', `/sessions/${id}/delete`, undefined, [200, 404]);
  }
}

function sum(counts: Map<string, number>): number {
  return [...counts.values()].reduce((total, count) => total + count, 0);
}
