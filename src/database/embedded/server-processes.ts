import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { hasCode } from '../../common/missing-file.js';
import { SOCKET_NAME } from './server-settings.js';

const FAST_SHUTDOWN_MS = 20_000;
const IMMEDIATE_SHUTDOWN_MS = 5_000;
const ORPHANS_MS = 5_000;
const KILL_MS = 5_000;
const POLL_MS = 5;

/**
 * The name that identifies the processes of a cluster's server. It appears in the arguments of the postmaster and in
 * the titles of its children, which every user can read. This way, another program that got a reused pid is never
 * mistaken for the server.
 */
export function serverTag(cluster: string): string {
  const { dev, ino } = statSync(cluster, { bigint: true });
  return `sessions_${dev.toString(36)}_${ino.toString(36)}`;
}

interface ServerProcesses {
  postmasters: number[];
  /** Every process that has the data open, including postmasters. */
  all: number[];
}

/** Finds the processes that serve the cluster, including those that earlier services left behind. */
export function findServer(cluster: string): ServerProcesses {
  const tag = serverTag(cluster);
  // Any process can have such a title, but only these users can open the data.
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
 * Shuts down the cluster's server if there is one: fast (open transactions are rolled back and all data is written),
 * and immediately if that takes too long, after which the next start runs recovery. Then removes everything that a
 * crash left behind, so that a new server can start. Takes bounded time.
 */
export async function shutDownServer(cluster: string): Promise<void> {
  const { postmasters } = findServer(cluster);
  if (postmasters.length > 0) {
    signalServer(postmasters, 'SIGINT');
    if (!(await isGone(cluster, FAST_SHUTDOWN_MS))) {
      signalServer(findServer(cluster).postmasters, 'SIGQUIT');
      await isGone(cluster, IMMEDIATE_SHUTDOWN_MS);
    }
  } else {
    // Children whose postmaster was killed notice that and exit.
    await isGone(cluster, ORPHANS_MS);
  }
  const rest = findServer(cluster).all;
  if (rest.length > 0) {
    signalServer(rest, 'SIGKILL');
    if (!(await isGone(cluster, KILL_MS)))
      throw new Error(`PostgreSQL processes on ${cluster} did not exit: ${rest.join(', ')}`);
  }
  clearStaleFiles(cluster);
}

/** A pid that no process can have on any system. */
const NO_PID = 2 ** 31 - 1;

/**
 * After a crash, the files of the old server contain its pid. If another program has that pid by now, PostgreSQL
 * mistakes it for the server and refuses to start. Only the pid is overwritten, because PostgreSQL needs the rest to
 * find and free the old shared memory.
 */
function clearStaleFiles(cluster: string): void {
  for (const name of [SOCKET_NAME, `${SOCKET_NAME}.lock`])
    rmSync(join(cluster, name), { force: true });
  const file = join(cluster, 'postmaster.pid');
  try {
    const text = readFileSync(file, 'utf8');
    // A power cut may leave the file empty, which PostgreSQL does not repair either.
    if (/^\d+\n/.test(text)) writeFileSync(file, text.replace(/^\d+/, `${NO_PID}`), { flag: 'r+' });
    else rmSync(file);
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error;
  }
}

/** @returns whether the postmaster with this pid reports that it accepts connections */
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

/** Unlike for what runs in sandboxes, a process that may not be signalled is an error: the server would never end. */
function signalServer(pids: number[], signal: NodeJS.Signals): void {
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
      // The process has exited.
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
