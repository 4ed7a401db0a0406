import { createHash } from 'node:crypto';
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  rmSync,
  rmdirSync,
  statSync,
  statfsSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';

/** Short: the paths of unix sockets, which are below it, may have 107 characters. */
const PREFIX = 'asr-';
const MARK = 'mark';
const MEMORY = '/dev/shm';
const ENOUGH_MEMORY = 2 ** 31;
const KILL_LIMIT_MS = 10_000;
const CGROUPS = '/sys/fs/cgroup';

/**
 * Identifies a process beyond its end: its id, its start time, the namespace in which the id counts, and the boot.
 * `null` if there is no such process, or it has ended and its parent has not asked for its exit code yet.
 *
 * @param {number} pid
 */
export function markOf(pid) {
  const fields = (read(`/proc/${pid}/stat`).split(') ').at(-1) ?? '').split(' ');
  if (fields.length < 20 || fields[0] === 'Z' || fields[0] === 'X') return null;
  return [pid, fields[19], ...here()].join(' ');
}

/** The namespace of process ids and the boot of this machine. */
function here() {
  return [
    linkOf('/proc/self/ns/pid') || 'unknown',
    read('/proc/sys/kernel/random/boot_id').trim() || 'unknown',
  ];
}

/**
 * Whether the process of a mark has ended. A mark from another namespace says nothing about the processes here, so
 * what carries it is left alone. One from before a restart of the machine is dead in every namespace.
 *
 * @param {string} mark
 * @returns {'alive' | 'dead' | 'unknown'}
 */
export function stateOf(mark) {
  const [pid, , namespace, boot, ...more] = mark.trim().split(' ');
  const [ownNamespace, ownBoot] = here();
  if (boot === undefined || more.length > 0) return 'unknown';
  if ([ownBoot, boot].includes('unknown')) return 'unknown';
  if (boot !== ownBoot) return 'dead';
  if (namespace !== ownNamespace || namespace === 'unknown') return 'unknown';
  return markOf(Number(pid)) === mark.trim() ? 'alive' : 'dead';
}

/**
 * Removes what dead runs have left, and gives this run folders of its own: one for all temporary files, and one in
 * memory. A run of Jest within a run of the whole suite shares its folders.
 *
 * @returns {() => void} ends what this run has left, and removes the folders
 */
export function beginTestRun() {
  if (process.env.TEST_RUN !== undefined) return () => undefined;
  for (const parent of parents()) for (const folder of deadRunsIn(parent)) removeRun(folder);
  const folder = newFolder(tmpdir());
  const memory = hasMemory() ? newFolder(MEMORY) : folder;
  process.env.TEST_RUN = basename(folder);
  process.env.TEST_MEMORY = memory;
  process.env.TMPDIR = folder;
  return () => {
    removeRun(folder);
    if (memory !== folder) removeRun(memory);
  };
}

const parents = () => [...new Set([tmpdir(), MEMORY])].filter((path) => existsSync(path));

/** Memory where there is plenty: a database is copied in 10 ms there, on a disk in 100. */
function hasMemory() {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    return bavail * bsize >= ENOUGH_MEMORY;
  } catch {
    return false;
  }
}

function newFolder(parent) {
  const folder = mkdtempSync(join(parent, PREFIX));
  // Sandboxes run as other users.
  chmodSync(folder, 0o755);
  writeFileSync(join(folder, MARK), `${markOf(process.pid)}\n`);
  return folder;
}

/** The folders of runs of this user that are dead. One without a mark is not known to be. */
function deadRunsIn(parent) {
  return names(parent)
    .filter((name) => name.startsWith(PREFIX))
    .map((name) => join(parent, name))
    .filter((folder) => {
      try {
        if (statSync(folder).uid !== process.geteuid()) return false;
      } catch {
        return false;
      }
      const mark = read(join(folder, MARK));
      return mark !== '' && stateOf(mark) === 'dead';
    });
}

/** Kills the processes of a run, and removes its mounts, control groups and files. */
function removeRun(folder) {
  const giveUpAt = Date.now() + KILL_LIMIT_MS;
  for (;;) {
    const pids = processesOf(folder);
    for (const pid of pids) kill(pid);
    if (pids.length === 0 || Date.now() > giveUpAt) break;
    spawnSync('sleep', ['0.1']);
  }
  for (const mount of mountsBelow(folder)) spawnSync('umount', ['--lazy', mount]);
  for (const group of groupsOf(folder)) removeGroup(group);
  // Never into what is still mounted below.
  if (mountsBelow(folder).length === 0) rmSync(folder, { recursive: true, force: true });
}

/**
 * The processes that work for a run, and their descendants: they name its folder in their arguments, have it in their
 * environment, work in it or have files of it open.
 */
export function processesOf(folder) {
  // This process works for the run, too; what started it does not.
  const above = new Set(ancestors());
  const all = names('/proc')
    .filter((name) => /^\d+$/.test(name) && !above.has(Number(name)))
    .map((pid) => ({ pid: Number(pid), parent: parentOf(pid), own: worksFor(pid, folder) }));
  const found = new Set(all.filter(({ own }) => own).map(({ pid }) => pid));
  for (let size = -1; size !== found.size;) {
    size = found.size;
    for (const { pid, parent } of all) if (found.has(parent)) found.add(pid);
  }
  return [...found];
}

function worksFor(pid, folder) {
  const inFolder = (text) => text.includes(`${folder}/`) || text.endsWith(folder);
  if (read(`/proc/${pid}/cmdline`).split('\0').some(inFolder)) return true;
  if (inFolder(linkOf(`/proc/${pid}/cwd`))) return true;
  if (
    read(`/proc/${pid}/environ`)
      .split('\0')
      .includes(`TEST_RUN=${basename(folder)}`)
  )
    return true;
  return names(`/proc/${pid}/fd`).some((fd) => inFolder(linkOf(`/proc/${pid}/fd/${fd}`)));
}

function ancestors() {
  const found = [];
  for (let pid = process.pid; pid > 0; pid = parentOf(pid)) found.push(pid);
  return found;
}

function kill(pid) {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended, or is another user's.
  }
}

/** The deepest first. */
function mountsBelow(folder) {
  return read('/proc/self/mountinfo')
    .split('\n')
    .map((line) => (line.split(' ')[4] ?? '').replaceAll('\\040', ' '))
    .filter((mount) => mount.startsWith(`${folder}/`))
    .toSorted((one, other) => other.length - one.length);
}

/**
 * The control groups of the services of a run. Their name has a digest of the folder that holds the service's
 * sandboxes: see src/sandboxes/driver/local/cgroups/sandbox-groups.ts.
 */
function groupsOf(folder) {
  const wanted = new Set(
    foldersBelow(folder, 3).flatMap((path) => {
      const digest = createHash('sha256').update(path).digest('hex').slice(0, 12);
      return [`agent-sessions-${digest}`, `supervisors-agent-sessions-${digest}`];
    }),
  );
  return foldersBelow(CGROUPS, 4).filter((path) => wanted.has(basename(path)));
}

function removeGroup(group) {
  for (const path of [...foldersBelow(group, 3), group].toSorted((a, b) => b.length - a.length)) {
    for (const pid of read(join(path, 'cgroup.procs')).split('\n')) {
      if (pid !== '') kill(Number(pid));
    }
    try {
      rmdirSync(path);
    } catch {
      // Its processes are ending; the groups of an empty installation take nothing.
    }
  }
}

function foldersBelow(folder, depth) {
  if (depth === 0) return [];
  let entries = [];
  try {
    entries = readdirSync(folder, { withFileTypes: true });
  } catch {
    // Gone, or not for us to read.
  }
  return entries
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => join(folder, name))
    .flatMap((path) => [path, ...foldersBelow(path, depth - 1)]);
}

/** The name in brackets may itself hold spaces and brackets; what counts comes after it. */
const parentOf = (pid) =>
  Number((read(`/proc/${pid}/stat`).split(') ').at(-1) ?? '').split(' ')[1] ?? 0);

function names(folder) {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function read(path) {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
}

function linkOf(path) {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}
