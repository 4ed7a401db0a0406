import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { mkdir, open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { isThere } from '../../../common/missing-file.js';
import { asUnavailable, SandboxError } from '../../../supervisor/sandbox-error.js';
import type { DiskLimit } from '../sandbox-driver.js';
import { SYSTEM_PATH, type SandboxLogger } from '../../../supervisor/sandbox-options.js';
import { findProgram, type Host } from './host.js';
import type { Launcher } from './launcher/launcher.js';

const MiB = 2 ** 20;
/**
 * Room above the limit: whoever passes the limit is stopped by the supervisor, with a message that says so, before the
 * file system is full. Nothing gets past the file system's own end.
 */
const MARGIN = { share: 8, least: 64 * MiB };
/** Tables of inodes, one inode for each block, and the journal. None of it takes room before it is used. */
const OWN_SHARE = 14;
const OWN_LEAST = 16 * MiB;

/**
 * One inode for each block, a small journal, nothing kept for root, no copies of the superblock: made in a few
 * milliseconds, and 130 KB on the host's disk.
 */
const FORMAT = [
  ['-q', '-F', '-m', '0', '-b', '4096', '-i', '4096', '-J', 'size=4', '-G', '64'],
  ['-O', '^resize_inode,sparse_super2'],
  ['-E', 'lazy_itable_init=1,lazy_journal_init=1,num_backup_sb=0,nodiscard'],
].flat();

/** What the agent deletes is given back to the host at once. */
const OPTIONS = 'loop,nodev,nosuid,noatime,noinit_itable,discard';

const PROGRAMS = ['unshare', 'flock', 'mount', 'losetup', 'mkfs.ext4'] as const;

/**
 * Mounts an image where only what follows sees it, and becomes that. Whoever mounts holds a lock meanwhile: one image
 * under two devices at once would be destroyed. A device that the kernel is just giving up cannot be had for a moment.
 */
const MOUNT = `
image=$1 target=$2 tmp=$3 shm=$4 path=$PATH
PATH=${SYSTEM_PATH}
shift 4
n=0
until [ -z "$image" ] ||
  said=$(flock -F "$image" mount -t ext4 -o ${OPTIONS} "$image" "$target" 2>&1); do
  n=$((n + 1))
  if [ $n -ge 40 ]; then echo "the disk of the sandbox cannot be mounted: $said" >&2; exit 125; fi
  sleep 0.05
done
if [ -n "$tmp" ]; then
  mount -t tmpfs -o "nodev,nosuid,mode=1777,size=$shm" tmpfs /dev/shm &&
  mount --bind "$tmp" /var/tmp && mount --bind "$tmp" /tmp || exit 125
fi
PATH=$path
exec "$@"`;

/** Run where it is mounted for the second time, beside the first: both have to be of one device. */
const TRY = `
case $(mount --version) in *util-linux*) ;; *) echo "mount is not util-linux's"; exit 1;; esac
[ "$(losetup -n -O NAME -j "$1" | wc -l)" = 1 ] || { echo "a second mount takes a second device"; exit 1; }`;

const RETRY_MS = 60_000;
const DETACH_MS = 5000;

/**
 * File systems of a fixed size, one for each sandbox, in sparse files of the host. An image is mounted for each entry
 * into its sandbox, in a mount namespace of that entry alone: when its last process ends, however it ends, the kernel
 * unmounts and lets go of the device. Nothing is mounted while nothing runs, and nothing is left by a crash.
 */
export class DiskImages {
  private known: { limit: DiskLimit; at: number } | undefined;

  constructor(
    private readonly host: Host,
    private readonly launcher: Launcher,
    private readonly stateDir: string,
    private readonly logger?: SandboxLogger,
  ) {}

  /** Can images be had here? Found out by making one, once; a no is asked again now and then. */
  async limit(): Promise<DiskLimit> {
    const { known } = this;
    if (known && (known.limit.kind === 'hard' || Date.now() - known.at < RETRY_MS)) {
      return known.limit;
    }
    const obstacle = await this.obstacle();
    const limit: DiskLimit =
      obstacle === null
        ? { kind: 'hard', by: 'a file system of fixed size for each sandbox' }
        : { kind: 'monitored', by: `counting (no file systems of their own: ${obstacle})` };
    if (this.host.root && limit.kind === 'monitored' && known?.limit.by !== limit.by) {
      this.logger?.warn(`The disk of sandboxes is monitored by ${limit.by}`);
    }
    this.known = { limit, at: Date.now() };
    return limit;
  }

  /**
   * Makes a sandbox's image with the contents of a folder, including owners and modes.
   * @returns whether there is one now; `false` only on hosts without images
   * @throws SandboxError `unavailable` if it is unknown whether there was one, because it may hold a sandbox's files;
   * `failed` if this image cannot be made, for example because the host's disk is full
   */
  async make(image: string, folder: string, contentBytes: number): Promise<boolean> {
    const isMade = await isThere(image).catch((error: unknown) => {
      throw asUnavailable(error);
    });
    if (isMade) return true;
    if ((await this.limit()).kind !== 'hard') return false;
    const failure = await this.format(image, folder, contentBytes);
    if (failure === null) return true;
    // Without an image, the sandbox would have no hard limit although the host promises one.
    this.logger?.warn(`The file system of a sandbox cannot be made: ${failure}`);
    throw new SandboxError('failed', 'the disk of the sandbox cannot be made');
  }

  private async obstacle(): Promise<string | null> {
    if (!this.host.root) return 'the service is not root';
    if (!this.host.mounts) return 'the service may not mount';
    const missing = PROGRAMS.filter((name) => findProgram(name) === null);
    if (missing.length > 0) return `${missing.join(', ')} not installed`;
    const folder = join(this.stateDir, `.disk-${randomBytes(6).toString('hex')}`);
    const [image, target] = [join(folder, 'image'), join(folder, 'files')];
    try {
      await mkdir(target, { recursive: true });
      const failure = await this.format(image, target, 0);
      if (failure !== null) return failure;
      const entry = mountedEntry({ image, target });
      const away = ['unshare', '--mount', '/bin/sh', '-c', 'umount "$0" && exec "$@"', target];
      const twice = [...entry, ...away, ...entry, '/bin/sh', '-c', TRY, 'sh', image];
      const { exitCode, output } = await this.launcher.run({ argv: twice });
      return exitCode === 0 ? null : output.split('\n').at(-1) || 'mounting fails';
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }

  /** @returns what went wrong, `null` if nothing did */
  private async format(
    image: string,
    folder: string,
    contentBytes: number,
  ): Promise<string | null> {
    const draft = `${image}.${randomBytes(6).toString('hex')}`;
    try {
      const file = await open(draft, 'wx', 0o600);
      try {
        await file.truncate(imageBytes(contentBytes));
      } finally {
        await file.close();
      }
      const argv = ['mkfs.ext4', ...FORMAT, '-d', folder, draft];
      const { exitCode, output } = await this.launcher.run({ argv });
      if (exitCode !== 0) return output.split('\n').at(-1) || 'mkfs.ext4 failed';
      await rename(draft, image);
      return null;
    } catch (error) {
      return (error as Error).message;
    } finally {
      await rm(draft, { force: true });
    }
  }
}

/**
 * What is put before a command so that it finds an image mounted, where none but it sees that. Runs as root, so it takes
 * programs from the system alone.
 * @param options.tmp a folder that is to be its /tmp and /var/tmp; it then also gets an empty /dev/shm of so many bytes
 */
export function mountedEntry(options: {
  image?: string;
  target?: string;
  tmp?: { folder: string; shmBytes: number };
}): string[] {
  const { image = '', target = '', tmp } = options;
  const unshare = findProgram('unshare') ?? '/usr/bin/unshare';
  return [
    [unshare, '--mount', '--propagation', 'slave', '--', '/bin/sh', '-c', MOUNT, 'sh'],
    [image, target, tmp?.folder ?? '', String(tmp?.shmBytes ?? '')],
  ].flat();
}

/** Waits, not for ever, until the kernel has let go of the image of a sandbox that was removed. */
export async function imageReleased(sandboxId: string): Promise<void> {
  const until = Date.now() + DETACH_MS;
  while (devicesOf(sandboxId).length > 0 && Date.now() < until) await delay(10);
}

/** How large an image is that holds so much. */
function imageBytes(contentBytes: number): number {
  const room = contentBytes + Math.max(contentBytes / MARGIN.share, MARGIN.least);
  return Math.ceil((room + room / OWN_SHARE + OWN_LEAST) / MiB) * MiB;
}

/** Loop devices whose file has the sandbox's id in its path, or had before it was removed. */
function devicesOf(sandboxId: string): string[] {
  try {
    return readdirSync('/sys/block').filter((name) => {
      if (!name.startsWith('loop')) return false;
      try {
        return readFileSync(`/sys/block/${name}/loop/backing_file`, 'utf8').includes(sandboxId);
      } catch {
        return false;
      }
    });
  } catch {
    return [];
  }
}
