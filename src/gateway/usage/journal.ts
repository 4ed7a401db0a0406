import { randomUUID } from 'node:crypto';
import { chownSync, mkdirSync } from 'node:fs';
import type { Server } from 'node:net';
import { join } from 'node:path';
import {
  filesOf,
  type Line,
  READ_BYTES,
  removeFiles,
  Segment,
  segmentName,
} from './journal-files.js';
import { LeftBehind, showAlive } from './left-behind.js';
import type { UsageBatch, UsageEntry } from './usage-entry.js';

export interface UsageJournalOptions {
  /** Made if it is missing. */
  folder: string;
  /** The user and group that the process will run as; `null`: stays the same. */
  owner?: number | null;
  /** The journal is full when it has this many bytes that nobody has acknowledged. */
  maxBytes?: number;
}

const SEGMENT_BYTES = 2 ** 20;
/** About 200,000 requests. */
const MAX_BYTES = 64 * 2 ** 20;

/**
 * The requests that no worker has acknowledged yet, in files of this gateway, so that they survive its death. A gateway
 * also delivers what killed ones have left in the same folder. Each gateway has a socket there, which tells the others
 * whether it is alive.
 */
export class UsageJournal {
  private readonly unfinished = new Map<string, UsageEntry>();
  /** Segments that are full, oldest first, and then the one that is written. */
  private readonly segments: Segment[] = [];
  private readonly left: LeftBehind;
  private count = 0;

  private constructor(
    private readonly folder: string,
    private readonly maxBytes: number,
    private readonly id: string,
    private readonly alive: Server,
  ) {
    this.left = new LeftBehind(folder, id);
    this.addSegment();
  }

  static async open({
    folder,
    owner = null,
    maxBytes = MAX_BYTES,
  }: UsageJournalOptions): Promise<UsageJournal> {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const id = randomUUID();
    const journal = new UsageJournal(folder, maxBytes, id, await showAlive(folder, id));
    if (owner !== null) {
      const files = filesOf(folder, id).map((name) => join(folder, name));
      for (const path of [folder, ...files]) chownSync(path, owner, owner);
    }
    return journal;
  }

  /** Whether nothing more can be recorded, because nobody has read the journal for too long. */
  get isFull(): boolean {
    const own = this.segments.reduce((sum, { size }) => sum + size, 0);
    return own + this.left.size >= this.maxBytes;
  }

  get isEmpty(): boolean {
    return this.left.isEmpty && this.segments.every((segment) => segment.isRead);
  }

  /** Records what is known of a request that goes on, in case this process is killed. */
  begin(entry: UsageEntry): void {
    this.unfinished.set(entry.id, entry);
    this.write({ ...entry, open: true });
  }

  /** Records a request that has ended. */
  append(entry: UsageEntry): void {
    this.unfinished.delete(entry.id);
    this.write(entry);
  }

  /** The oldest entries; the same ones again until they are acknowledged. `undefined` if there are none. */
  next(): UsageBatch | undefined {
    return this.left.next() ?? this.nextOwn();
  }

  /** Looks for what killed gateways have left. */
  adopt(): Promise<void> {
    return this.left.adopt();
  }

  /** Removes the files of this journal if everything in it is acknowledged. */
  close(): void {
    this.alive.close();
    for (const segment of this.segments) segment.close();
    if (this.isEmpty && this.unfinished.size === 0) removeFiles(this.folder, this.id);
  }

  private write(line: Line): void {
    if ((this.segments.at(-1)?.size ?? 0) >= SEGMENT_BYTES) this.addSegment();
    this.segments.at(-1)?.append(line);
  }

  private addSegment(): void {
    this.count += 1;
    this.segments.push(new Segment(join(this.folder, segmentName(this.id, this.count))));
    this.repeatUnfinished();
  }

  /** Requests that go on must not disappear together with the file that they are in. */
  private repeatUnfinished(): void {
    for (const entry of this.unfinished.values())
      this.segments.at(-1)?.append({ ...entry, open: true });
  }

  private nextOwn(): UsageBatch | undefined {
    for (;;) {
      const [segment] = this.segments;
      if (segment === undefined) return undefined;
      const { lines, end } = segment.read();
      const entries = lines.filter(({ open }) => open !== true);
      if (entries.length > 0) return { entries, acknowledge: () => this.acknowledge(segment, end) };
      if (lines.length === 0 && this.segments.length === 1) return undefined;
      this.acknowledge(segment, end);
      if (this.segments.length === 1 && segment.isRead) return undefined;
    }
  }

  private acknowledge(segment: Segment, end: number): void {
    segment.acknowledged = Math.max(segment.acknowledged, end);
    if (!segment.isRead) return;
    if (segment !== this.segments.at(-1)) {
      this.segments.splice(this.segments.indexOf(segment), 1);
      segment.remove();
    } else if (segment.size >= READ_BYTES || this.unfinished.size === 0) {
      segment.empty();
      this.repeatUnfinished();
      segment.acknowledged = segment.size;
    }
  }
}
