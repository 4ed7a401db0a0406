import {
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  opendirSync,
  openSync,
  type Dir,
  type Stats,
} from 'node:fs';
import { Look, processFolder, STEPS_PER_DESCRIPTOR, Uncountable } from './look.js';

/** Disk space of files without a name that processes hold open. */
export interface Unlinked {
  bytes: number;
  /** Is the size of something unknown: a mapped file, or descriptors in flight? */
  unseen: boolean;
  /** Is there a process whose open files cannot be inspected? */
  hidden: boolean;
}

/** `7f00-7f01 rw-p 00001000 fe:01 1234   /tmp/x (deleted)` */
const DELETED_MAPPING =
  /^([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) .* \(deleted\)$/;
/** Descriptors sent over a unix socket and not received yet, if the kernel shows them. */
const IN_FLIGHT = /^scm_fds:\s+([1-9]\d*)$/m;

/** About 60,000 descriptors, or a million mappings. No work needs more, so more count as exceeding the limit. */
const MOST_UNLINKED = { steps: 1_000_000, cpuMs: 5000 };

/** A device number in the encoding of `stat`. */
function deviceNumber(major: number, minor: number): number {
  return (
    (major & 0xfff) * 256 +
    (minor & 0xff) +
    Math.floor(minor / 256) * 2 ** 20 +
    Math.floor(major / 0x1000) * 2 ** 44
  );
}

/**
 * Finds files without a name that these processes hold open or mapped. Counting by folder does not see them.
 * @param devices the file systems to count
 * @throws Uncountable if they hold too much to be inspected
 */
export async function unlinkedFiles(
  pids: readonly number[],
  devices: ReadonlySet<number>,
  look = new Look(MOST_UNLINKED),
): Promise<Unlinked> {
  const sizes = new Map<string, number>();
  const lengths = new Map<string, number>();
  let unseen = false;
  for (const pid of pids) {
    const folder = processFolder(look, pid)?.folder;
    if (folder === undefined) continue;
    for (const fd of look.read(() => readdirSync(`${folder}/fd`), [])) {
      await look.step(STEPS_PER_DESCRIPTOR);
      const path = `${folder}/fd/${fd}`;
      if (look.read(() => readlinkSync(path), '').startsWith('socket:')) {
        const info = look.read(() => readFileSync(`${folder}/fdinfo/${fd}`, 'latin1'), '');
        unseen ||= IN_FLIGHT.test(info);
        continue;
      }
      const stats = look.read(() => statSync(path), null);
      if (stats?.isFile() && stats.nlink === 0 && devices.has(stats.dev))
        sizes.set(`${stats.dev}:${stats.ino}`, stats.blocks * 512);
    }
    for await (const lines of look.lines(`${folder}/maps`)) {
      for (const mapping of lines.map((line) => DELETED_MAPPING.exec(line))) {
        if (mapping === null) continue;
        const [, from = '', to = '', offset = '', major = '', minor = '', inode = ''] = mapping;
        const device = deviceNumber(Number.parseInt(major, 16), Number.parseInt(minor, 16));
        if (!devices.has(device)) continue;
        const identity = `${device}:${inode}`;
        if (sizes.has(identity)) continue;
        const size = sizeOfMapped(pid, `${from}-${to}`);
        if (size !== null) sizes.set(identity, size);
        else {
          const end =
            Number.parseInt(offset, 16) + Number.parseInt(to, 16) - Number.parseInt(from, 16);
          lengths.set(identity, Math.max(lengths.get(identity) ?? 0, end));
        }
      }
    }
    look.done(pid);
  }
  for (const [identity, length] of lengths) {
    if (sizes.has(identity)) continue;
    sizes.set(identity, length);
    unseen = true;
  }
  return { bytes: sum(sizes.values()), unseen, hidden: look.hidden };
}

/** `null` without the permission to look, which needs CAP_CHECKPOINT_RESTORE. */
function sizeOfMapped(pid: number, range: string): number | null {
  try {
    return statSync(`/proc/${pid}/map_files/${range}`).blocks * 512;
  } catch {
    return null;
  }
}

/** Every file costs at least this much, so that a million empty ones do not count as nothing. */
export const BYTES_PER_FILE = 4096;
/**
 * To count files with several hard links once, the supervisor keeps them in its small memory. A larger number counts as
 * exceeding the limit.
 */
const MAX_LINKED = 400_000;
/** Deeper trees count as too large: each level keeps a descriptor open while what is below it is counted. */
const MAX_DEPTH = 400;
const O_PATH = 0x200000;
const FOLDER = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/** The part of a container's own file system that was changed after a point in time. */
export interface ChangedSince {
  root: string;
  /** Milliseconds since 1970. No program can set the time of an inode's change. */
  since: number;
}

const sum = (numbers: Iterable<number>): number => [...numbers].reduce((a, b) => a + b, 0);
const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? '';

/**
 * Bytes on disk below the folders, counting hard links once. Stops early if the result exceeds `enough`. A tree that
 * cannot be read completely counts as infinite.
 *
 * Every entry is accessed through the descriptor of its folder and by the bytes of its name. Therefore long paths,
 * names that are not UTF-8, and folders that are replaced by links cannot hide anything.
 * @throws errors that say nothing about the tree, such as EMFILE or EIO
 */
export async function diskUsage(
  folders: readonly string[],
  enough: number,
  changed?: ChangedSince,
): Promise<number> {
  const count = new Count(enough);
  try {
    for (const folder of folders) await count.tree(folder);
    if (changed !== undefined) await count.tree(changed.root, changed.since);
  } catch (error) {
    if (error instanceof Uncountable) return Number.POSITIVE_INFINITY;
    throw error;
  }
  return count.bytes;
}

class Count {
  bytes = 0;
  private readonly linked = new Map<number, Set<number>>();
  private linkedFiles = 0;
  private readonly look = new Look();

  constructor(private readonly enough: number) {}

  /** @param since counts only later changes, and stays on the file system of `path` */
  async tree(path: string, since?: number): Promise<void> {
    const fd = openFolder(path);
    if (fd === null) return;
    const device = since === undefined ? undefined : fstatSync(fd).dev;
    await this.folder(fd, 0, { since, device });
  }

  private async folder(
    fd: number,
    depth: number,
    only: { since: number | undefined; device: number | undefined },
  ): Promise<void> {
    let listing: Dir | undefined;
    try {
      if (depth > MAX_DEPTH) throw new Uncountable('too deep');
      const prefix = Buffer.from(`/proc/self/fd/${fd}/`);
      listing = opendirSync(prefix.toString(), { encoding: 'buffer' as 'latin1', bufferSize: 256 });
      for (let entry = listing.readSync(); entry !== null; entry = listing.readSync()) {
        const path = Buffer.concat([prefix, entry.name as unknown as Buffer]);
        const stats = statIn(fd, path);
        if (stats === null) continue;
        if (only.since === undefined || stats.ctimeMs > only.since) this.add(stats);
        if (this.bytes > this.enough) return;
        await this.look.step();
        if (!stats.isDirectory()) continue;
        if (only.device !== undefined && stats.dev !== only.device) continue;
        const child = openFolder(path);
        if (child !== null) await this.folder(child, depth + 1, only);
        if (this.bytes > this.enough) return;
      }
    } finally {
      listing?.closeSync();
      closeSync(fd);
    }
  }

  private add(stats: Stats): void {
    if (stats.nlink > 1 && !stats.isDirectory()) {
      const known = this.linked.get(stats.dev) ?? new Set();
      if (known.has(stats.ino)) return;
      this.linked.set(stats.dev, known.add(stats.ino));
      if ((this.linkedFiles += 1) > MAX_LINKED) throw new Uncountable('too many linked files');
    }
    this.bytes += Math.max(stats.blocks * 512, BYTES_PER_FILE);
  }
}

/** The status of an entry, `null` if it was removed. A folder that may be listed but not searched is opened first. */
function statIn(folder: number, path: Buffer): Stats | null {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return lstatSync(path);
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return null;
      if (codeOf(error) !== 'EACCES') throw error;
      if (attempt > 1) throw new Uncountable('a folder cannot be searched', { cause: error });
      unlock(folder);
    }
  }
}

/**
 * Opens a folder for listing without following links; `null` if it is gone or no longer a folder. A folder that the
 * agent made unreadable is made readable again.
 */
function openFolder(path: string | Buffer): number | null {
  try {
    return openSync(path, FOLDER);
  } catch (error) {
    if (['ENOENT', 'ENOTDIR', 'ELOOP'].includes(codeOf(error))) return null;
    if (codeOf(error) !== 'EACCES') throw error;
  }
  let handle: number;
  try {
    handle = openSync(path, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  } catch (error) {
    if (['ENOENT', 'ENOTDIR', 'ELOOP'].includes(codeOf(error))) return null;
    throw new Uncountable('a folder cannot be opened', { cause: error });
  }
  try {
    unlock(handle);
    return openSync(`/proc/self/fd/${handle}`, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch (error) {
    if (codeOf(error) === 'EMFILE' || codeOf(error) === 'ENFILE') throw error;
    throw new Uncountable('a folder cannot be opened', { cause: error });
  } finally {
    closeSync(handle);
  }
}

function unlock(folder: number): void {
  try {
    chmodSync(`/proc/self/fd/${folder}`, 0o700);
  } catch (error) {
    throw new Uncountable('a folder cannot be opened', { cause: error });
  }
}
