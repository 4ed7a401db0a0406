import { closeSync, existsSync, read, readSync, watch, type FSWatcher } from 'node:fs';
import { promisify } from 'node:util';
import type { SpoolChunk, SpoolEvent } from '../../sandbox-driver.js';
import { SandboxError } from '../../sandbox-error.js';
import { EXIT_RECORD, type LaunchFolder, openPlainFile, SPOOL } from '../launch/launch-folder.js';
import { isProcessAlive } from '../launch/process-identity.js';
import { decodeFrame, FRAME_HEADER_BYTES, MAX_FRAME_PAYLOAD } from './spool-format.js';

/** How often a follower looks by itself: it finds a dead supervisor this way, and what a lost wake-up would have told. */
const POLL_MS = 400;
const READ_BYTES = 4 * (MAX_FRAME_PAYLOAD + FRAME_HEADER_BYTES);
/**
 * Where the end of a spool is read to. Of a spool that grows slowly it is a line, just written and still in memory: to
 * read that at once takes microseconds, and the way through the thread pool and back a hundred. Shared by all followers.
 */
const scratch = Buffer.allocUnsafeSlow(16 * 1024);
const readLater = promisify(read);

/** What may have changed: the spool, the record of the exit as well, or, as the poll was due, anything. */
type Change = 'spool' | 'exit' | 'all';

/** Wakes one waiter when something in the launch's folder changes, when the poll is due, or on abort. */
class Doorbell {
  private rung = false;
  private recorded = false;
  private wake: (() => void) | undefined;
  private readonly watcher: FSWatcher | undefined;
  private readonly ring = (): void => {
    this.rung = true;
    this.wake?.();
  };
  /** Of the folder's files only these two matter: the pipes in it change with every write, too, and before the spool. */
  private readonly see = (_event: string, name: string | null): void => {
    if (name === EXIT_RECORD || name === null) this.recorded = true;
    else if (name !== SPOOL) return;
    this.ring();
  };

  constructor(
    folder: string,
    private readonly signal: AbortSignal,
  ) {
    signal.addEventListener('abort', this.ring);
    try {
      this.watcher = watch(folder, { persistent: false }, this.see);
      // Without it (out of inotify watches, folder gone) the poll still makes progress.
      this.watcher.on('error', () => this.watcher?.close());
    } catch {
      this.watcher = undefined;
    }
  }

  async wait(): Promise<Change> {
    if (!this.rung) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, this.watcher === undefined ? 20 : POLL_MS);
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.wake = undefined;
    }
    const { rung, recorded } = this;
    this.rung = this.recorded = false;
    if (!rung) return 'all';
    return recorded ? 'exit' : 'spool';
  }

  close(): void {
    this.signal.removeEventListener('abort', this.ring);
    this.watcher?.close();
  }
}

/** Reads whole frames from a spool, never holding more than one buffer. */
class FrameSource {
  private fd: number | null = null;
  private size = scratch.length;
  /** The spool may go on behind what was read last. */
  hasMore = true;

  constructor(
    private readonly path: string,
    private offset: number,
  ) {}

  /** The frames that are there now, at most a buffer full; none if there is no whole one. */
  async read(): Promise<SpoolChunk[]> {
    this.fd ??= openPlainFile(this.path);
    this.hasMore = false;
    if (this.fd === null) return [];
    const filled = await this.fill(this.fd);
    const chunks: SpoolChunk[] = [];
    let position = 0;
    for (;;) {
      // A frame that does not check out is one that is still being written; after the exit it is the end.
      const frame = decodeFrame(filled, position);
      if (typeof frame === 'string') break;
      const offset = this.offset + position;
      position += frame.bytes;
      chunks.push({
        kind: 'chunk',
        stream: frame.stream,
        data: frame.payload,
        offset,
        nextOffset: this.offset + position,
      });
    }
    this.offset += position;
    const full = filled.length === this.size;
    const wasFew = this.size !== READ_BYTES;
    this.size = full ? READ_BYTES : scratch.length;
    // A large buffer that is full without a whole frame has met the end of what is whole.
    this.hasMore = full && (chunks.length > 0 || wasFew);
    return chunks;
  }

  close(): void {
    if (this.fd !== null) closeSync(this.fd);
    this.fd = null;
  }

  private async fill(fd: number): Promise<Buffer> {
    if (this.size === scratch.length) {
      return Buffer.from(scratch.subarray(0, readSync(fd, scratch, 0, this.size, this.offset)));
    }
    const buffer = Buffer.allocUnsafeSlow(this.size);
    const { bytesRead } = await readLater(fd, buffer, 0, this.size, this.offset);
    return buffer.subarray(0, bytesRead);
  }
}

/** How the launch stands: still running, or over, and how. Looks only at what may have changed. */
function standing(folder: LaunchFolder, changed: Change): SpoolEvent | null {
  if (changed === 'spool') return null;
  if (changed === 'exit') return recordedExit(folder);
  const lost: SpoolEvent = { kind: 'exit', reason: 'lost', exitCode: null };
  const started = folder.readStart();
  if (started === null || 'abandoned' in started) return lost;
  const alive = isProcessAlive(started.supervisor);
  // In this order: a supervisor that wrote its record and then ended is not lost.
  return recordedExit(folder) ?? (alive ? null : lost);
}

function recordedExit(folder: LaunchFolder): SpoolEvent | null {
  const record = folder.readExit();
  return record === null ? null : { kind: 'exit', ...record };
}

/**
 * Yields a launch's output from a byte offset of its spool on, and last its exit. Pulls: what the consumer has not taken
 * stays on disk.
 * @throws SandboxError `aborted` when the signal fires
 */
export async function* followSpool(
  folder: LaunchFolder,
  offset: number,
  signal: AbortSignal,
): AsyncGenerator<SpoolEvent, void, undefined> {
  // What was found lost must stay lost: nothing may start it after this.
  if (existsSync(folder.path) && folder.readStart() === null)
    folder.claimStart({ abandoned: true });
  const doorbell = new Doorbell(folder.path, signal);
  const source = new FrameSource(folder.spool, offset);
  let changed: Change = 'all';
  try {
    for (;;) {
      if (signal.aborted) throw new SandboxError('aborted', 'following was aborted');
      // This is looked at before the read: everything that belongs to it is in the spool by then.
      const end = standing(folder, changed);
      do {
        for (const chunk of await source.read()) {
          yield chunk;
          if (signal.aborted) throw new SandboxError('aborted', 'following was aborted');
        }
      } while (source.hasMore);
      if (end !== null) {
        // Before the last event: who has it has no reason to come back, and nothing may stay open then.
        doorbell.close();
        source.close();
        yield end;
        return;
      }
      // A supervisor that writes is there; one that is gone is found by the poll.
      changed = await doorbell.wait();
    }
  } finally {
    doorbell.close();
    source.close();
  }
}
