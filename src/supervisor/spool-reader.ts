import { closeSync, existsSync, read, readSync, watch, type FSWatcher } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { SpoolChunk, SpoolEvent } from './calls.js';
import { Condition } from '../common/async.js';
import { SandboxError, saysNothing, type UnknownState } from './sandbox-error.js';
import { EXIT_RECORD, type LaunchFolder, openPlainFile, SPOOL } from './launch-folder.js';
import { isProcessAlive } from './processes.js';
import { decodeFrame, FRAME_HEADER_BYTES, MAX_FRAME_PAYLOAD } from './spool-format.js';

/** The polling interval of followers, which detects dead supervisors and changes whose notification was lost. */
const POLL_MS = 400;
/** The retry interval after an error that leaves the state unknown. */
const UNKNOWN_RETRY_MS = 500;
const READ_BYTES = 4 * (MAX_FRAME_PAYLOAD + FRAME_HEADER_BYTES);
/**
 * A buffer for the end of a spool, shared by all followers. A slowly growing spool has one new line that is still in
 * the page cache: reading it synchronously takes microseconds, compared with about a hundred for a round trip through
 * the thread pool.
 */
const scratch = Buffer.allocUnsafeSlow(16 * 1024);
const readLater = promisify(read);

/** What a follower has to read again: the spool only, the exit record as well, or everything after a poll interval. */
type Change = 'spool' | 'exit' | 'all';

/** Waits until the launch's folder changes, the poll is due, or the signal aborts. */
class FolderWatch {
  private readonly changes = new Condition();
  private seen = this.changes.seen();
  private recorded = false;
  private readonly watcher: FSWatcher | undefined;
  private readonly notify = (): void => this.changes.notify();
  /** Only these two files matter. The pipes in the folder also change with every write, and before the spool does. */
  private readonly see = (_event: string, name: string | null): void => {
    if (name === EXIT_RECORD || name === null) this.recorded = true;
    else if (name !== SPOOL) return;
    this.notify();
  };

  constructor(
    folder: string,
    private readonly signal: AbortSignal,
  ) {
    signal.addEventListener('abort', this.notify);
    try {
      this.watcher = watch(folder, { persistent: false }, this.see);
      // If watching fails (no inotify watches left, folder gone), polling still makes progress.
      this.watcher.on('error', () => this.watcher?.close());
    } catch {
      this.watcher = undefined;
    }
  }

  async wait(): Promise<Change> {
    await this.changes.wait(this.seen, this.watcher === undefined ? 20 : POLL_MS);
    const { seen: before, recorded } = this;
    this.seen = this.changes.seen();
    this.recorded = false;
    if (this.seen === before) return 'all';
    return recorded ? 'exit' : 'spool';
  }

  close(): void {
    this.signal.removeEventListener('abort', this.notify);
    this.watcher?.close();
  }
}

/** Reads complete frames from a spool. Never holds more than one buffer. */
class FrameSource {
  private fd: number | null = null;
  private size = scratch.length;
  /** The spool may have grown. */
  hasMore = true;

  constructor(
    private readonly path: string,
    private offset: number,
  ) {}

  /** The complete frames that exist now, at most one buffer full; may be empty. */
  async read(): Promise<SpoolChunk[]> {
    this.fd ??= openPlainFile(this.path);
    this.hasMore = false;
    if (this.fd === null) return [];
    const filled = await this.fill(this.fd);
    const chunks: SpoolChunk[] = [];
    let position = 0;
    for (;;) {
      // An invalid frame is still being written, or after the exit marks the end.
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
    // If a large buffer is full without a complete frame, the rest of the spool is invalid.
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

/** The state of the launch: running, or its exit. Only checks what may have changed. */
function standing(folder: LaunchFolder, changed: Change): SpoolEvent | null {
  if (changed === 'spool') return null;
  if (changed === 'exit') return recordedExit(folder);
  const lost: SpoolEvent = { kind: 'exit', reason: 'lost', exitCode: null };
  const started = folder.readStart();
  if (started === null || 'abandoned' in started) return lost;
  const alive = isProcessAlive(started.supervisor);
  // The order matters: a supervisor that wrote its record and then ended is not lost.
  return recordedExit(folder) ?? (alive ? null : lost);
}

function recordedExit(folder: LaunchFolder): SpoolEvent | null {
  const record = folder.readExit();
  return record === null ? null : { kind: 'exit', ...record };
}

/** Once a launch is reported as lost it must stay lost, so nothing may start it after this. */
function forbidStart(folder: LaunchFolder): void {
  if (existsSync(folder.path) && folder.readStart() === null)
    folder.claimStart({ abandoned: true });
}

/**
 * Yields a launch's output from a byte offset of its spool, and finally its exit. The consumer controls the pace;
 * unread output stays on disk. After errors that leave the state unknown it retries. It ends only with an exit record,
 * or with proof that the supervisor is gone.
 * @param unknown is called when the launch's state is unknown, and when it is known again
 * @throws SandboxError `aborted` when the signal fires
 */
export async function* followSpool(
  folder: LaunchFolder,
  offset: number,
  signal: AbortSignal,
  unknown?: UnknownState,
): AsyncGenerator<SpoolEvent, void, undefined> {
  let watched: FolderWatch | undefined;
  const source = new FrameSource(folder.spool, offset);
  let changed: Change = 'all';
  try {
    for (;;) {
      if (signal.aborted) throw new SandboxError('aborted', 'following was aborted');
      let end: SpoolEvent | null = null;
      let isKnown = true;
      const notKnown = (error: unknown): void => {
        if (!saysNothing(error)) throw error;
        isKnown = false;
        unknown?.note(error);
      };
      try {
        if (watched === undefined) forbidStart(folder);
        // Checked before reading, because then all output that belongs to it is in the spool.
        end = standing(folder, changed);
      } catch (error) {
        notKnown(error);
      }
      watched ??= new FolderWatch(folder.path, signal);
      try {
        do {
          for (const chunk of await source.read()) {
            yield chunk;
            if (signal.aborted) throw new SandboxError('aborted', 'following was aborted');
          }
        } while (source.hasMore);
      } catch (error) {
        notKnown(error);
        source.close();
      }
      if (!isKnown) {
        watched.close();
        watched = undefined;
        changed = 'all';
        await delay(UNKNOWN_RETRY_MS, undefined, { signal }).catch(() => undefined);
        continue;
      }
      if (changed === 'all') unknown?.clear();
      if (end !== null) {
        // Closed before the last event, because a consumer that has it need not call again.
        watched.close();
        source.close();
        yield end;
        return;
      }
      // While there is output the supervisor is alive; polling detects when it is gone.
      changed = await watched.wait();
    }
  } finally {
    unknown?.clear();
    watched?.close();
    source.close();
  }
}
