import { setTimeout as delay } from 'node:timers/promises';
import { prepareWorkload, deleteAll } from './chaos.js';
import { Cluster } from './cluster.js';
import { leftovers } from './leftovers.js';
import { Random } from './random.js';
import { Takeovers } from './takeovers.js';
import { ROOT, type ServiceProcess } from './service-process.js';
import { retry, SessionRun, Tally, type WorkloadOptions } from './workload.js';

const IDLE_SESSIONS = 3;

/**
 * Restarts every process of a cluster, one after the other, while sessions run and are read, and others wait for their
 * next prompt.
 * @returns whether no agent was interrupted, no reader missed anything and idle sessions still have their files.
 */
export async function runRolling(options: {
  sessions: number;
  readers: number;
  /** How long the turns take at least. */
  seconds: number;
  /** The folder of an older version, built: the restart is an upgrade from it. */
  from?: string | undefined;
  /** Stops all workers before the first new one starts, as an upgrade from 0.1.0 requires. */
  workersFirst?: boolean;
  /** Ends the processes with SIGKILL instead of SIGTERM. */
  kill?: boolean;
  log: (line: string) => void;
}): Promise<boolean> {
  const { log, sessions, readers, seconds, from, workersFirst = false, kill = false } = options;
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
    const idle = await Promise.all(
      Array.from({ length: IDLE_SESSIONS }, (_, index) => startIdle(workload, index)),
    );
    const runs = Array.from({ length: sessions }, () => new SessionRun(workload).run());
    await running(cluster, sessions);
    log(`${sessions} sessions run, ${tally.readers} readers; restarting`);
    const signalName = kill ? 'SIGKILL' : 'SIGTERM';
    const end = async (member: ServiceProcess): Promise<void> => {
      const begun = performance.now();
      let ended: Promise<unknown> | undefined;
      await takeovers.during(signalName, member.role === 'worker' ? member.pid : undefined, () => {
        ended = kill ? member.kill9() : member.stop();
      });
      await ended;
      log(`  ${member.name.padEnd(10)} ended in ${(performance.now() - begun).toFixed(0)} ms`);
    };
    const restart = async (member: ServiceProcess): Promise<void> => {
      const begun = performance.now();
      member.project = ROOT;
      member.spawn();
      if (!(await member.ready())) throw new Error(`${member.name} did not come back`);
      log(`  ${member.name.padEnd(10)} ready in ${(performance.now() - begun).toFixed(0)} ms`);
    };
    const { workers, apis } = cluster;
    if (workersFirst) {
      for (const member of workers) await end(member);
      for (const member of workers) await restart(member);
    }
    for (const member of workersFirst ? apis : cluster.processes) {
      await end(member);
      await restart(member);
    }
    const [row] = await cluster.database.query<{ count: string }>(
      `SELECT count(*) FROM sessions WHERE status = 'running'`,
    );
    log(`all restarted; ${row?.count} of ${sessions} sessions still run`);
    await Promise.all(runs);
    await takeovers.settle();
    const unchanged = await Promise.all(idle.map((id, index) => hasItsFiles(workload, id, index)));
    log(`idle sessions with their files: ${unchanged.filter(Boolean).length} of ${IDLE_SESSIONS}`);
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
      unchanged.every(Boolean) &&
      ended.every(({ status }) => status === 'completed') &&
      (kill || cluster.processes.every(({ exitCode }) => exitCode === 0));
    log(ok ? 'OK' : 'FAILED');
    return ok;
  } finally {
    await cluster.stop();
  }
}

/** Runs a session that leaves a file of its own. @returns its id, once it waits for a prompt */
async function startIdle(workload: WorkloadOptions, index: number): Promise<string> {
  const body = { agent_id: workload.agentId, prompt: `echo idle-${index} > ~/note; cp ~/note .` };
  const { body: session } = await retry(workload, 'POST', '/sessions', body, [202]);
  const id = String(session['id']);
  await untilEnded(workload, id);
  return id;
}

/** Prompts an idle session again, which fails unless its files are there. */
async function hasItsFiles(workload: WorkloadOptions, id: string, index: number): Promise<boolean> {
  const body = { prompt: `grep -qx idle-${index} ~/note && grep -qx idle-${index} note` };
  await retry(workload, 'POST', `/sessions/${id}/prompt`, body, [202]);
  return (await untilEnded(workload, id)) === 'completed';
}

async function untilEnded(workload: WorkloadOptions, id: string): Promise<string> {
  for (;;) {
    const { body } = await retry(workload, 'GET', `/sessions/${id}`, undefined, [200]);
    const status = String(body['status']);
    if (!['pending', 'running'].includes(status)) return status;
    await delay(100);
  }
}

async function running(cluster: Cluster, count: number): Promise<void> {
  for (;;) {
    const [row] = await cluster.database.query<{ count: string }>(
      `SELECT count(*) FROM turns WHERE status = 'running' AND first_output_id IS NOT NULL`,
    );
    if (Number(row?.count) >= count) return;
    await delay(200);
  }
}
