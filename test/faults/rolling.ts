import { setTimeout as delay } from 'node:timers/promises';
import { prepareWorkload, deleteAll } from './chaos.js';
import { Cluster } from './cluster.js';
import { leftovers } from './leftovers.js';
import { Random } from './random.js';
import { Takeovers } from './takeovers.js';
import { ROOT } from './service-process.js';
import { SessionRun, Tally } from './workload.js';

/**
 * Restarts every process of a cluster, one after the other, while sessions run and are read.
 * @returns whether no agent was interrupted and no reader missed anything.
 */
export async function runRolling(options: {
  sessions: number;
  readers: number;
  /** How long the turns take at least. */
  seconds: number;
  /** The folder of an older version, built: the restart is an upgrade from it. */
  from?: string | undefined;
  log: (line: string) => void;
}): Promise<boolean> {
  const { log, sessions, readers, seconds, from } = options;
  const cluster = await Cluster.start({ api: 2, workers: 2, project: from });
  try {
    const tally = new Tally();
    const takeovers = new Takeovers(cluster);
    const signal = AbortSignal.timeout((seconds + 240) * 1000);
    const random = new Random(1);
    const workload = {
      ...(await prepareWorkload(cluster, random, tally, signal, {
        readersPerSession: Math.ceil(readers / sessions),
        turnSeconds: [seconds, seconds + 5],
      })),
      restless: false,
      steady: true,
    };
    const runs = Array.from({ length: sessions }, () => new SessionRun(workload).run());
    await running(cluster, sessions);
    log(`${sessions} sessions run, ${tally.readers} readers; restarting`);
    for (const member of cluster.processes) {
      let ended: Promise<number> | undefined;
      await takeovers.during('SIGTERM', member.role === 'worker' ? member.pid : undefined, () => {
        ended = member.stop();
      });
      const stopMs = await ended;
      const begun = performance.now();
      member.project = ROOT;
      member.spawn();
      if (!(await member.ready())) throw new Error(`${member.name} did not come back`);
      log(
        `  ${member.name.padEnd(10)} stopped in ${stopMs?.toFixed(0)} ms with code ${member.exitCode}, ready ${(performance.now() - begun).toFixed(0)} ms after its start`,
      );
    }
    const [row] = await cluster.database.query<{ count: string }>(
      `SELECT count(*) FROM sessions WHERE status = 'running'`,
    );
    log(`all restarted; ${row?.count} of ${sessions} sessions still run`);
    await Promise.all(runs);
    await takeovers.settle();
    const ended = await cluster.database.query<{ status: string; count: string }>(
      'SELECT status, count(*) FROM sessions GROUP BY status',
    );
    await deleteAll(workload);
    const left = await leftovers(cluster, 60_000);
    const times = [...takeovers.times.values()].flat().sort((a, b) => a - b);
    log(`sessions: ${ended.map(({ status, count }) => `${count} ${status}`).join(', ')}`);
    log(`readers ${tally.readers}, connections ${tally.connections}, bytes ${tally.bytes}`);
    log(
      `turns handed over ${times.length}, without a worker for ${times[Math.floor(times.length / 2)]?.toFixed(0)} ms at the median, ${times.at(-1)?.toFixed(0)} ms at worst`,
    );
    log(
      `lost ${tally.lost}, repeated ${tally.repeated}, reordered ${tally.reordered}, left ${left.length}`,
    );
    for (const problem of [...tally.problems, ...left]) log(`PROBLEM ${problem}`);
    const ok =
      tally.problems.length === 0 &&
      left.length === 0 &&
      ended.every(({ status }) => status === 'completed') &&
      cluster.processes.every(({ exitCode }) => exitCode === 0);
    log(ok ? 'OK' : 'FAILED');
    return ok;
  } finally {
    await cluster.stop();
  }
}

async function running(cluster: Cluster, count: number): Promise<void> {
  for (;;) {
    const [row] = await cluster.database.query<{ count: string }>(
      'SELECT count(*) FROM turns WHERE first_output_id IS NOT NULL',
    );
    if (Number(row?.count) >= count) return;
    await delay(200);
  }
}
