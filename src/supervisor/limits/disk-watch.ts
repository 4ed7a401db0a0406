import { statfsSync, statSync } from 'node:fs';
import type { CountedDisk } from '../launch-request.js';
import { Uncountable } from './look.js';
import { BYTES_PER_FILE, diskUsage, unlinkedFiles } from './disk-usage.js';

/**
 * Without any sign of growth, the interval of full counts, or longer, so that counting takes at most a fiftieth of the
 * time. These counts are needed because another sandbox may free as much space as this one takes.
 */
const IDLE_COUNT_MS = 4000;
const IDLE_COUNT_SHARE = 50;
/**
 * After this many failed counts in a row, for reasons that are not the sandbox's fault, the sandbox counts as over its
 * limit.
 */
const MAX_FAILURES = 20;
/**
 * Files of unknown size only count after this many counts in a row, because briefly passing a descriptor is legitimate.
 */
const UNSEEN_COUNTS = 3;

/** Monitors the disk space of a sandbox. */
export interface DiskWatch {
  /** `true` if the limit is exceeded. Cheap when nothing has grown. */
  exceeded(): Promise<boolean>;
}

export function watchDisk(
  disk: CountedDisk,
  limitBytes: number,
  pids: () => readonly number[],
): DiskWatch {
  return disk.kind === 'volume'
    ? new VolumeWatch(disk.path, limitBytes)
    : new CountingWatch(disk, limitBytes, pids);
}

/**
 * For a sandbox with its own file system, which is slightly larger than the limit. The kernel knows the used space at
 * any time, and the sandbox cannot use more than the file system has.
 */
class VolumeWatch implements DiskWatch {
  constructor(
    private readonly path: string,
    private readonly limitBytes: number,
  ) {}

  /** Async, so that a failing statfs rejects: callers handle only that. */
  async exceeded(): Promise<boolean> {
    const { blocks, bfree, bsize, files, ffree } = statfsSync(this.path);
    const used = Math.max((blocks - bfree) * bsize, (files - ffree) * BYTES_PER_FILE);
    return used > this.limitBytes;
  }
}

/**
 * For a sandbox on a shared file system. Its files are only counted if the file system has lost space since the last
 * count, and occasionally. Fails closed: a tree that cannot be counted is over the limit.
 */
class CountingWatch implements DiskWatch {
  private freeAtStart: number | undefined;
  private usedAtStart = 0;
  private freeAtCount = Number.POSITIVE_INFINITY;
  private nextCountAt = 0;
  private counting: Promise<boolean> | undefined;
  private failures = 0;
  private unseen = 0;
  private hidden = 0;

  constructor(
    private readonly disk: Extract<CountedDisk, { kind: 'folders' }>,
    private readonly limitBytes: number,
    private readonly pids: () => readonly number[],
  ) {}

  exceeded(): Promise<boolean> {
    this.counting ??= this.count().finally(() => (this.counting = undefined));
    return this.counting;
  }

  private async count(): Promise<boolean> {
    try {
      const exceeded = await this.countIfDue();
      this.failures = 0;
      return exceeded;
    } catch (error) {
      if (error instanceof Uncountable) return true;
      // For example too many open files: the size is unknown for now.
      this.failures += 1;
      return this.failures > MAX_FAILURES;
    }
  }

  private async countIfDue(): Promise<boolean> {
    const { folders, changed } = this.disk;
    const { bavail, bsize, ffree } = statfsSync(folders[0]);
    const free = bavail * bsize + ffree * BYTES_PER_FILE;
    const began = performance.now();
    if (this.freeAtCount - free <= this.limitBytes / 32 && began <= this.nextCountAt) return false;
    const roots = changed === undefined ? folders : [...folders, changed.root];
    const devices = new Set(roots.map((folder) => statSync(folder).dev));
    const unlinked = await unlinkedFiles(this.pids(), devices);
    const used = (await diskUsage(folders, this.limitBytes, changed)) + unlinked.bytes;
    this.freeAtCount = free;
    const took = performance.now() - began;
    this.unseen = unlinked.unseen ? this.unseen + 1 : 0;
    this.hidden = unlinked.hidden ? this.hidden + 1 : 0;
    if (this.hidden >= UNSEEN_COUNTS) return true;
    // Counts again at once if the next count decides.
    const wait = Math.max(IDLE_COUNT_MS, took * IDLE_COUNT_SHARE);
    this.nextCountAt = this.hidden > 0 ? began : began + wait;
    if (this.freeAtStart === undefined) {
      this.freeAtStart = free;
      this.usedAtStart = used;
    }
    // Processes hold files of unknown size, and the file system has lost more space than the known files explain.
    const unexplained = this.freeAtStart - free - (used - this.usedAtStart);
    if (this.unseen >= UNSEEN_COUNTS && unexplained > this.limitBytes) return true;
    return used > this.limitBytes;
  }
}
