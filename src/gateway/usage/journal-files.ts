import {
  closeSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import type { UsageEntry } from './usage-entry.js';

/** The folder of journals, beside the gateway's socket. */
export const USAGE_FOLDER = 'usage';
export const SEGMENT_ENDING = '.jsonl';
/** The ending of the socket that tells other gateways whether a gateway is alive. */
export const ALIVE_ENDING = '.alive';
/** How much of a segment is read at a time. */
export const READ_BYTES = 64 * 1024;

const FILE = /^([0-9a-f-]{36})(-\d+\.jsonl|\.alive)$/;
const NEWLINE = 0x0a;

/** One line of a segment. */
export interface Line extends UsageEntry {
  /** The request was not finished yet. A later line with the same id replaces this one. */
  open?: true;
}

/** One file of a journal. */
export class Segment {
  size = 0;
  /** Lines before this position are acknowledged. */
  acknowledged = 0;
  private readonly file: number;

  constructor(private readonly path: string) {
    this.file = openSync(path, 'a+', 0o600);
  }

  get isRead(): boolean {
    return this.acknowledged >= this.size;
  }

  append(line: Line): void {
    this.size += writeSync(this.file, `${JSON.stringify(line)}\n`);
  }

  /** The next lines that are not acknowledged, and where they end. */
  read(): { lines: Line[]; end: number } {
    const start = this.acknowledged;
    const buffer = Buffer.alloc(Math.min(READ_BYTES, this.size - start));
    const bytes = buffer.subarray(0, readSync(this.file, buffer, 0, buffer.length, start));
    const whole = bytes.subarray(0, bytes.lastIndexOf(NEWLINE) + 1);
    // A full disk may have cut a line.
    return { lines: linesOf(whole), end: start + (whole.length || bytes.length) };
  }

  empty(): void {
    ftruncateSync(this.file);
    this.size = 0;
    this.acknowledged = 0;
  }

  close(): void {
    closeSync(this.file);
  }

  remove(): void {
    this.close();
    unlink(this.path);
  }
}

/** The name of a gateway's segment. Sorting the names gives their order. */
export function segmentName(gateway: string, number: number): string {
  return `${gateway}-${String(number).padStart(6, '0')}${SEGMENT_ENDING}`;
}

/** The ids of the gateways with files in a folder. */
export function gatewaysIn(folder: string): Set<string> {
  return new Set(readdirSync(folder).flatMap((name) => FILE.exec(name)?.[1] ?? []));
}

/** The names of a gateway's files, segments in their order. */
export function filesOf(folder: string, gateway: string): string[] {
  return readdirSync(folder)
    .filter((name) => name.startsWith(gateway))
    .toSorted();
}

/** All lines that a gateway has left in its segments. */
export function linesOfGateway(folder: string, gateway: string): Line[] {
  return filesOf(folder, gateway)
    .filter((name) => name.endsWith(SEGMENT_ENDING))
    .flatMap((name) => linesOf(readFileSync(join(folder, name))));
}

export function removeFiles(folder: string, gateway: string): void {
  // In this order the socket goes last. A gateway without a socket counts as killed.
  for (const name of filesOf(folder, gateway).toReversed()) unlink(join(folder, name));
}

/** A killed gateway may have left half a line. */
function linesOf(bytes: Buffer): Line[] {
  return bytes
    .toString('utf8')
    .split('\n')
    .flatMap((text) => {
      try {
        return text === '' ? [] : [JSON.parse(text) as Line];
      } catch {
        return [];
      }
    });
}

function unlink(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // Either another gateway has removed it, or it stays and its entries are delivered again.
  }
}
