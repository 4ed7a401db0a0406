import { readdirSync, readFileSync, readlinkSync, statfsSync, statSync } from 'node:fs';
import { Look, processFolder, STEPS_PER_DESCRIPTOR, Uncountable } from './look.js';
import { unlessGone } from '../processes.js';

const TMPFS_MAGIC = 0x01021994;
/** How often descriptors are scanned: less often if a scan takes long, but at least at the longer interval. */
const DESCRIPTORS_MS = { least: 1000, most: 4000 };
const DESCRIPTORS_SHARE = 50;
/** About 60,000 descriptors. No work needs more mappings or descriptors, so more count as too much memory. */
const MOST = { steps: 1_000_000, cpuMs: 2000 };
/** The number of lines per mapping in `smaps`. */
const LINES_PER_MAPPING = 24;
/** After this many failed counts in a row, the launch counts as over its limit. */
const FAILURES = 8;
/**
 * After this many scans in a row with a process that hides its open files, the launch also counts as over its limit.
 */
const HIDDEN_LOOKS = 3;
/** Matches memory that is in no folder: memfds, anonymous shared mappings and System V segments. */
const NAMELESS = /^(?:\/memfd:|\/dev\/zero \(deleted\)|\/SYSV)/;

/** Memory files without a name by inode, with their bytes. */
type MemoryFiles = Map<number, number>;

/** Converts a line that the kernel prints in KiB to bytes. */
function bytesOf(text: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(text)?.[1] ?? 0) * 1024;
}

/**
 * Memory of a process by its status, without mapped files, in bytes. Pages that several processes share count for each.
 * Swapped memory and page tables count too, because they also use the host's memory.
 */
export function residentBytes(status: string): number {
  return ['RssAnon', 'RssShmem', 'VmSwap', 'VmPTE'].reduce(
    (sum, name) => sum + bytesOf(status, name),
    0,
  );
}

/** Mapped memory of a process that is in no folder and has no descriptor. */
async function namelessBytes(look: Look, folder: string, counted: MemoryFiles): Promise<number> {
  let bytes = 0;
  let counts = false;
  for await (const lines of look.lines(`${folder}/smaps`, LINES_PER_MAPPING)) {
    for (const line of lines) {
      const [, inode, path] =
        /^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ (\d+)\s*(.*)$/.exec(line) ?? ([] as string[]);
      if (inode !== undefined) counts = NAMELESS.test(path ?? '') && !counted.has(Number(inode));
      else if (counts && line.startsWith('Pss:')) bytes += bytesOf(line, 'Pss');
    }
  }
  return bytes;
}

/** Memory files that the processes hold open and that are in no folder, mapped or not. */
async function openMemoryFiles(look: Look, pids: readonly number[]): Promise<MemoryFiles> {
  const files: MemoryFiles = new Map();
  for (const pid of pids) {
    const folder = processFolder(look, pid)?.folder;
    if (folder === undefined) continue;
    for (const name of look.read(() => readdirSync(`${folder}/fd`), [])) {
      const path = `${folder}/fd/${name}`;
      await look.step(STEPS_PER_DESCRIPTOR);
      const target = look.read(() => readlinkSync(path), '');
      if (!target.startsWith('/memfd:')) continue;
      const stats = look.read(() => statSync(path), null);
      if (stats !== null) files.set(stats.ino, stats.blocks * 512);
    }
    look.done(pid);
  }
  return files;
}

/** Bytes in use in those folders that are in memory. */
function scratchBytes(folders: readonly string[]): number {
  let bytes = 0;
  for (const folder of folders) {
    const usage = unlessGone(() => statfsSync(folder), null);
    if (usage?.type === TMPFS_MAGIC) bytes += (usage.blocks - usage.bfree) * usage.bsize;
  }
  return bytes;
}

const sum = (numbers: Iterable<number>): number => [...numbers].reduce((a, b) => a + b, 0);

/**
 * Monitors the memory of a launch's processes if no control group limits it. Misses memory that /proc does not show: a
 * memfd in flight through a socket, a System V segment that nobody has attached, and memory of the kernel, such as
 * socket buffers.
 */
export class MemoryWatch {
  private files: MemoryFiles = new Map();
  private nextLookAt = 0;
  private failures = 0;
  private hiddenLooks = 0;
  private looking: Promise<boolean> | undefined;

  /**
   * @param scratch folders that may be kept in memory, as this process sees them
   * @param hard the kernel limits the memory itself, so nothing is counted
   */
  constructor(
    private readonly limitBytes: number,
    private readonly pids: () => readonly number[],
    private readonly scratch: () => readonly string[],
    private readonly hard: boolean,
  ) {}

  /** Fails closed: also `true` if counting failed for some time, or if there is too much to count. */
  exceeded(): Promise<boolean> {
    if (this.hard) return Promise.resolve(false);
    this.looking ??= this.look().finally(() => (this.looking = undefined));
    return this.looking;
  }

  private async look(): Promise<boolean> {
    try {
      const exceeded = await this.count(new Look(MOST));
      this.failures = 0;
      return exceeded;
    } catch (error) {
      this.failures += 1;
      return error instanceof Uncountable || this.failures >= FAILURES;
    }
  }

  private async count(look: Look): Promise<boolean> {
    const pids = this.pids();
    await this.lookForFiles(look, pids);
    const elsewhere = scratchBytes(this.scratch()) + sum(this.files.values());
    if (this.hiddenLooks >= HIDDEN_LOOKS || elsewhere > this.limitBytes) return true;
    let most = elsewhere;
    for (const pid of pids) {
      most += residentBytes(processFolder(look, pid)?.status ?? '');
      if (most > this.limitBytes) return this.countExactly(look, pids, elsewhere);
      await look.step();
    }
    return false;
  }

  /** Counts exactly. The cheap count counts forked pages twice and may include mapped files. */
  private async countExactly(
    look: Look,
    pids: readonly number[],
    elsewhere: number,
  ): Promise<boolean> {
    let bytes = elsewhere;
    let shared = 0;
    const sharing: string[] = [];
    for (const pid of pids) {
      const found = processFolder(look, pid);
      if (found === null) continue;
      const { folder, status } = found;
      const rollup = look.read(() => readFileSync(`${folder}/smaps_rollup`, 'latin1'), '');
      if (bytesOf(rollup, 'Rss') === 0) {
        // Cannot be inspected, or has no memory of its own: uses the upper bound.
        bytes += residentBytes(status);
      } else {
        bytes += ['Pss_Anon', 'SwapPss'].reduce((all, name) => all + bytesOf(rollup, name), 0);
        bytes += bytesOf(status, 'VmPTE');
        const mapped = bytesOf(rollup, 'Pss_Shmem');
        shared += mapped;
        if (mapped > 0) sharing.push(folder);
      }
      if (bytes > this.limitBytes) return true;
      await look.step();
    }
    if (bytes + shared <= this.limitBytes) return false;
    for (const folder of sharing) {
      bytes += await namelessBytes(look, folder, this.files);
      if (bytes > this.limitBytes) return true;
    }
    return false;
  }

  private async lookForFiles(look: Look, pids: readonly number[]): Promise<void> {
    const now = performance.now();
    if (now < this.nextLookAt) return;
    this.files = await openMemoryFiles(look, pids);
    this.hiddenLooks = look.hidden ? this.hiddenLooks + 1 : 0;
    const wait = Math.max(DESCRIPTORS_MS.least, (performance.now() - now) * DESCRIPTORS_SHARE);
    this.nextLookAt = performance.now() + Math.min(wait, DESCRIPTORS_MS.most);
  }
}
