import { existsSync, watch, type FSWatcher } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { constants } from 'node:fs';
import type { SpoolChunk, SpoolEvent } from '../../sandbox-driver.js';
import { SandboxError } from '../../sandbox-error.js';
import type { LaunchFolder } from '../launch/launch-folder.js';
import { isProcessAlive } from '../launch/process-identity.js';
import { decodeFrame, FRAME_HEADER_BYTES, MAX_FRAME_PAYLOAD } from './spool-format.js';

/** How often a follower looks by itself: it finds a dead supervisor this way, and what a lost wake-up would have told. */
const POLL_MS = 400;
const READ_BYTES = 4 * (MAX_FRAME_PAYLOAD + FRAME_HEADER_BYTES);
/** What is read of a spool that grows slowly: a large buffer for each line would be most of what a live turn costs. */
const FEW_BYTES = 4 * 1024;

/** Wakes one waiter when something in the launch's folder changes, when the poll is due, or on abort. */
class Doorbell {
  private rung = false;
  private wake: (() => void) | undefined;
  private readonly watcher: FSWatcher | undefined;
  private readonly ring = (): void => {
    this.rung = true;
    this.wake?.();
  };

  constructor(
    folder: string,
    private readonly signal: AbortSignal,
  ) {
    signal.addEventListener('abort', this.ring);
    try {
      this.watcher = watch(folder, { persistent: false }, this.ring);
      // Without it (out of inotify watches, folder gone) the poll still makes progress.
      this.watcher.on('error', () => this.watcher?.close());
    } catch {
      this.watcher = undefined;
    }
  }

  /** @returns whether it rang, rather than that the poll was due. */
  async wait(): Promise<boolean> {
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
    const { rung } = this;
    this.rung = false;
    return rung;
  }

  close(): void {
    this.signal.removeEventListener('abort', this.ring);
    this.watcher?.close();
  }
}

async function openSpool(path: string): Promise<FileHandle | null> {
  try {
    const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
    const handle = await open(path, flags);
    if ((await handle.stat()).isFile()) return handle;
    await handle.close();
    return null;
  } catch {
    return null;
  }
}

/** Reads whole frames from a spool, never holding more than one buffer. */
class FrameSource {
  private handle: FileHandle | null = null;
  private size = FEW_BYTES;

  constructor(
    private readonly path: string,
    private offset: number,
  ) {}

  /** The frames that are there now, at most a buffer full; none if there is no whole one. */
  async read(): Promise<SpoolChunk[]> {
    this.handle ??= await openSpool(this.path);
    if (this.handle === null) return [];
    const buffer = Buffer.allocUnsafe(this.size);
    const { bytesRead } = await this.handle.read(buffer, 0, this.size, this.offset);
    const full = bytesRead === this.size;
    const filled = buffer.subarray(0, bytesRead);
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
    const wasFew = this.size === FEW_BYTES;
    this.size = full ? READ_BYTES : FEW_BYTES;
    // There is a frame, only too large for a small buffer.
    return full && wasFew && chunks.length === 0 ? this.read() : chunks;
  }

  async close(): Promise<void> {
    const { handle } = this;
    this.handle = null;
    await handle?.close();
  }
}

/**
 * How the launch stands: still running, or over, and how.
 * @param looks at the supervisor itself, too, and not only for what it has recorded.
 */
function verdict(folder: LaunchFolder, looks: boolean): SpoolEvent | null {
  if (!looks) {
    const record = folder.readExit();
    return record === null ? null : { kind: 'exit', ...record };
  }
  const lost: SpoolEvent = { kind: 'exit', reason: 'lost', exitCode: null };
  const started = folder.readStart();
  if (started === null || 'abandoned' in started) return lost;
  const alive = isProcessAlive(started.supervisor);
  // In this order: a supervisor that wrote its record and then ended is not lost.
  const exit = folder.readExit();
  if (exit !== null) return { kind: 'exit', ...exit };
  return alive ? null : lost;
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
  let looks = true;
  try {
    for (;;) {
      if (signal.aborted) throw new SandboxError('aborted', 'following was aborted');
      // The verdict is taken before the read: everything that belongs to it is in the spool by then.
      const end = verdict(folder, looks);
      for (;;) {
        const chunks = await source.read();
        if (chunks.length === 0) break;
        for (const chunk of chunks) {
          yield chunk;
          if (signal.aborted) throw new SandboxError('aborted', 'following was aborted');
        }
      }
      if (end !== null) {
        // Before the last event: who has it has no reason to come back, and nothing may stay open then.
        doorbell.close();
        await source.close();
        yield end;
        return;
      }
      // A supervisor that works is there; one that is gone is found by the poll.
      looks = !(await doorbell.wait());
    }
  } finally {
    doorbell.close();
    await source.close();
  }
}
