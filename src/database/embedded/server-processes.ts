import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { hasCode } from './data-dir-error.js';
import { SOCKET_NAME } from './settings.js';

const FAST_SHUTDOWN_MS = 20_000;
const IMMEDIATE_SHUTDOWN_MS = 5_000;
const ORPHANS_MS = 5_000;
const KILL_MS = 5_000;
const POLL_MS = 5;

/**
 * The name by which the processes of a cluster's server are recognised: it stands in the arguments
 * of the postmaster and in the titles of its children, which anybody may read, so that a pid that
 * another program got meanwhile is never mistaken for the server.
 */
export function serverTag(cluster: string): string {
  const { dev, ino } = statSync(cluster, { bigint: true });
  return `sessions_${dev.toString(36)}_${ino.toString(36)}`;
}

interface ServerProcesses {
  postmasters: number[];
  /** Everything that has the data open, the postmasters included. */
  all: number[];
}

/** Finds the processes that serve the cluster, left-overs of earlier services too. */
export function findServer(cluster: string): ServerProcesses {
  const tag = serverTag(cluster);
  // Anybody can give a process such a title; only these can have the data open.
  const users = new Set([0, process.geteuid?.(), statSync(cluster).uid]);
  const postmasters: number[] = [];
  const children: number[] = [];
  for (const { pid, args, uid } of process.platform === 'linux' ? procArgs() : psArgs()) {
    if (args.includes(`cluster_name=${tag}`) && users.has(uid())) postmasters.push(pid);
    else if (args[0]?.startsWith(`postgres: ${tag}:`) && users.has(uid())) children.push(pid);
  }
  return { postmasters, all: [...postmasters, ...children] };
}

/**
 * Shuts the cluster's server down, if there is one: fast (open transactions are rolled back, all
 * data is written), and when that takes too long at once, after which the next start recovers.
 * Whatever a crash left behind is cleared, so that a new server can start. Bounded in time.
 */
export async function shutDownServer(cluster: string): Promise<void> {
  const { postmasters } = findServer(cluster);
  if (postmasters.length > 0) {
    signalAll(postmasters, 'SIGINT');
    if (!(await isGone(cluster, FAST_SHUTDOWN_MS))) {
      signalAll(findServer(cluster).postmasters, 'SIGQUIT');
      await isGone(cluster, IMMEDIATE_SHUTDOWN_MS);
    }
  } else {
    // Children whose postmaster was killed notice that and leave.
    await isGone(cluster, ORPHANS_MS);
  }
  const rest = findServer(cluster).all;
  if (rest.length > 0) {
    signalAll(rest, 'SIGKILL');
    if (!(await isGone(cluster, KILL_MS)))
      throw new Error(`PostgreSQL processes on ${cluster} do not end: ${rest.join(', ')}`);
  }
  clearStaleFiles(cluster);
}

/** A number that no process can have, on any system. */
const NO_PID = 2 ** 31 - 1;

/**
 * After a crash the files of the old server name its pid. When another program has that pid by now,
 * PostgreSQL takes it for the server and refuses to start. The pid is struck out and the rest kept,
 * by which PostgreSQL finds and frees the old shared memory.
 */
function clearStaleFiles(cluster: string): void {
  for (const name of [SOCKET_NAME, `${SOCKET_NAME}.lock`])
    rmSync(join(cluster, name), { force: true });
  const file = join(cluster, 'postmaster.pid');
  try {
    const text = readFileSync(file, 'utf8');
    // A power cut may leave it empty, which PostgreSQL does not mend either.
    if (/^\d+\n/.test(text)) writeFileSync(file, text.replace(/^\d+/, `${NO_PID}`), { flag: 'r+' });
    else rmSync(file);
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error;
  }
}

/** @returns whether the postmaster with this pid says that it accepts connections */
export function isReady(cluster: string, pid: number): boolean {
  try {
    const lines = readFileSync(join(cluster, 'postmaster.pid'), 'utf8').split('\n');
    return lines[0] === String(pid) && lines[7]?.trim() === 'ready';
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return false;
    throw error;
  }
}

async function isGone(cluster: string, withinMs: number): Promise<boolean> {
  const deadline = Date.now() + withinMs;
  while (findServer(cluster).all.length > 0) {
    if (Date.now() > deadline) return false;
    await delay(POLL_MS);
  }
  return true;
}

function signalAll(pids: number[], signal: NodeJS.Signals): void {
  for (const pid of pids)
    try {
      process.kill(pid, signal);
    } catch (error) {
      if (!hasCode(error, 'ESRCH')) throw error;
    }
}

interface ProcessArgs {
  pid: number;
  args: string[];
  uid: () => number | undefined;
}

function* procArgs(): Generator<ProcessArgs> {
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const args = readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0');
      const uid = (): number | undefined =>
        statSync(`/proc/${name}`, { throwIfNoEntry: false })?.uid;
      yield { pid: Number(name), args, uid };
    } catch {
      // Ended meanwhile.
    }
  }
}

function* psArgs(): Generator<ProcessArgs> {
  const table = execFileSync('ps', ['-axww', '-o', 'pid=,uid=,args='], { encoding: 'utf8' });
  for (const line of table.split('\n')) {
    const [, pid, uid, command = ''] = /^\s*(\d+)\s+(\d+)\s(.*)$/.exec(line) ?? [];
    if (pid === undefined) continue;
    const args = [command, ...command.split(' ').slice(1)];
    yield { pid: Number(pid), args, uid: () => Number(uid) };
  }
}
