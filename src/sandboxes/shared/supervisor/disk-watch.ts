import {
  closeSync,
  constants,
  chmodSync,
  lstatSync,
  openSync,
  readdirSync,
  statfsSync,
  statSync,
} from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** Every file costs at least this much, so that a million empty ones do not count as nothing. */
const BYTES_PER_FILE = 4096;
/** After this many entries the scan lets the output through. */
const ENTRIES_PER_SLICE = 400;
const O_PATH = 0x200000;
/**
 * Without any sign of growth a full count is made this often, or so rarely that counting takes a fiftieth of the time:
 * somebody else may be freeing as much as this sandbox takes.
 */
const IDLE_SCAN_MS = 4000;
const IDLE_SCAN_SHARE = 50;

/** Opens a folder for listing, never through a link. A folder that the agent made unreadable is made readable again. */
function openFolder(path: string): number | null {
  const flags = constants.O_DIRECTORY | constants.O_NOFOLLOW;
  try {
    return openSync(path, constants.O_RDONLY | flags);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EACCES') return null;
  }
  try {
    const handle = openSync(path, O_PATH | flags);
    try {
      chmodSync(`/proc/self/fd/${handle}`, 0o700);
      return openSync(`/proc/self/fd/${handle}`, constants.O_RDONLY | constants.O_DIRECTORY);
    } finally {
      closeSync(handle);
    }
  } catch {
    return null;
  }
}

/** Bytes on disk below the folders, hard links counted once. Stops early, with what it has, past `enough`. */
export async function diskUsage(folders: readonly string[], enough: number): Promise<number> {
  const pending = [...folders];
  const linked = new Set<string>();
  let bytes = 0;
  let slice = 0;
  for (let folder = pending.pop(); folder !== undefined; folder = pending.pop()) {
    const fd = openFolder(folder);
    if (fd === null) continue;
    try {
      // Through the descriptor: the folder may be swapped for a link meanwhile.
      for (const entry of readdirSync(`/proc/self/fd/${fd}`, { withFileTypes: true })) {
        try {
          const stats = lstatSync(`/proc/self/fd/${fd}/${entry.name}`);
          const identity = `${stats.dev}:${stats.ino}`;
          if (stats.nlink > 1 && !stats.isDirectory()) {
            if (linked.has(identity)) continue;
            linked.add(identity);
          }
          bytes += Math.max(stats.blocks * 512, BYTES_PER_FILE);
          if (stats.isDirectory()) pending.push(`${folder}/${entry.name}`);
        } catch {
          // Removed meanwhile.
        }
        slice += 1;
      }
    } finally {
      closeSync(fd);
    }
    if (bytes > enough) return bytes;
    if (slice > ENTRIES_PER_SLICE) {
      slice = 0;
      await nextTurn();
    }
  }
  return bytes;
}

/** Bytes of files that have no name any more but are held open: the usual way to hide from a count by folder. */
function unlinkedBytes(pids: readonly number[], device: number): number {
  const seen = new Map<string, number>();
  for (const pid of pids) {
    try {
      for (const fd of readdirSync(`/proc/${pid}/fd`)) {
        const stats = statSync(`/proc/${pid}/fd/${fd}`, { throwIfNoEntry: false });
        if (stats?.isFile() && stats.nlink === 0 && stats.dev === device)
          seen.set(`${stats.dev}:${stats.ino}`, stats.blocks * 512);
      }
    } catch {
      // Gone meanwhile.
    }
  }
  return [...seen.values()].reduce((a, b) => a + b, 0);
}

/**
 * Watches how much a sandbox holds on disk. Nobody has quotas for unprivileged users everywhere, so it counts; but only
 * when the file system has lost space since the last count, or now and then.
 */
export class DiskWatch {
  private freeAtScan = Number.POSITIVE_INFINITY;
  private nextScanAt = 0;
  private scanning = false;

  constructor(
    private readonly folders: readonly string[],
    private readonly limitBytes: number,
    private readonly pids: () => number[],
  ) {}

  /** `true` if the limit is exceeded. Cheap when nothing has grown. */
  async exceeded(): Promise<boolean> {
    const [first] = this.folders;
    if (this.scanning || first === undefined) return false;
    const { bavail, bsize, ffree } = statfsSync(first);
    const free = bavail * bsize + ffree * BYTES_PER_FILE;
    const lost = this.freeAtScan - free;
    const now = performance.now();
    const due = lost > this.limitBytes / 32 || now > this.nextScanAt;
    if (!due) return false;
    this.scanning = true;
    try {
      const used =
        (await diskUsage(this.folders, this.limitBytes)) +
        unlinkedBytes(this.pids(), statSync(first).dev);
      this.freeAtScan = free;
      const took = performance.now() - now;
      this.nextScanAt = now + Math.max(IDLE_SCAN_MS, took * IDLE_SCAN_SHARE);
      return used > this.limitBytes;
    } finally {
      this.scanning = false;
    }
  }
}
