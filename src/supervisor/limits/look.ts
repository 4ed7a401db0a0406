import { closeSync, openSync, readFileSync, readdirSync, readSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { unlessGone } from '../processes.js';

/** The longest time that a scan delays the supervisor's other work. */
const SLICE_MS = 10;
/** Inspecting a descriptor takes about as long as inspecting this many mappings. */
export const STEPS_PER_DESCRIPTOR = 16;
const PIECE_BYTES = 64 * 1024;
const DENIED = new Set(['EACCES', 'EPERM']);

/** The amount is unknown, or measuring it would take too long. Callers treat that as exceeding the limit. */
export class Uncountable extends Error {}

/**
 * One scan of a sandbox's resources. It yields to the supervisor's other work every few milliseconds, and ends if there
 * is too much to scan. So a sandbox cannot stop its supervisor from enforcing limits by holding many resources.
 */
export class Look {
  /** Whether there was a process that even its own user may not inspect. */
  hidden = false;
  private denied = false;
  private steps = 0;
  private spentMs = 0;
  private slice = beginSlice();

  constructor(
    private readonly most: { steps: number; cpuMs: number } = { steps: Infinity, cpuMs: Infinity },
  ) {}

  /** Await it after each piece of work. @throws Uncountable after too much of it */
  async step(steps = 1): Promise<void> {
    this.steps += steps;
    if (this.steps > this.most.steps) throw new Uncountable('there is too much to scan');
    if (performance.now() < this.slice.endsAt) return;
    // Measures processor time, because the sandbox is not at fault if others keep the processor busy.
    if (this.most.cpuMs < Infinity) {
      this.spentMs += cpuMs() - this.slice.cpuMs;
      if (this.spentMs > this.most.cpuMs) throw new Uncountable('scanning takes too long');
    }
    await nextTurn();
    this.slice = beginSlice();
  }

  /**
   * The result of `read`, or `otherwise` if the process is gone or cannot be inspected. {@link done} finds out which.
   */
  read<T>(read: () => T, otherwise: T): T {
    try {
      return unlessGone(read, otherwise);
    } catch (error) {
      if (!DENIED.has((error as NodeJS.ErrnoException).code ?? '')) throw error;
      this.denied = true;
      return otherwise;
    }
  }

  /**
   * Call it after a process was scanned. A process that is just ending cannot be inspected either, but hides nothing.
   */
  done(pid: number): void {
    if (this.denied && processFolder(this, pid) !== null) this.hidden = true;
    this.denied = false;
  }

  /**
   * Yields whole lines of a file in /proc in batches: with 65,000 mappings, the file is too large for this process's
   * memory.
   */
  async *lines(path: string, linesPerStep = 1): AsyncGenerator<readonly string[], void, undefined> {
    const fd = this.read(() => openSync(path, 'r'), null);
    if (fd === null) return;
    try {
      const buffer = Buffer.allocUnsafe(PIECE_BYTES);
      let rest = '';
      for (;;) {
        const bytes = this.read(() => readSync(fd, buffer), 0);
        if (bytes === 0) break;
        const lines = (rest + buffer.toString('latin1', 0, bytes)).split('\n');
        rest = lines.pop() ?? '';
        yield lines;
        await this.step(lines.length / linesPerStep);
      }
    } finally {
      closeSync(fd);
    }
  }
}

function beginSlice(): { endsAt: number; cpuMs: number } {
  return { endsAt: performance.now() + SLICE_MS, cpuMs: cpuMs() };
}

function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

const statusOf = (folder: string): string => readFileSync(`${folder}/status`, 'latin1');
const isDead = (status: string): boolean => /^State:\s+[ZX]/m.test(status);

/**
 * The folder below /proc with a process's resources, and its status; `null` if the process is gone. Uses the folder of
 * another thread if the first thread has ended, because then the process's own folder is empty.
 */
export function processFolder(look: Look, pid: number): { folder: string; status: string } | null {
  const read = (folder: string): string => look.read(() => statusOf(folder), 'State: X');
  const folder = `/proc/${pid}`;
  const status = read(folder);
  if (!isDead(status)) return { folder, status };
  for (const thread of look.read(() => readdirSync(`${folder}/task`), [])) {
    const ofThread = `${folder}/task/${thread}`;
    const itsStatus = read(ofThread);
    if (!isDead(itsStatus)) return { folder: ofThread, status: itsStatus };
  }
  return null;
}
