import { LogKind, type NewLogRow } from '../event-log/log-row.js';
import type { SpoolChunk } from '../sandboxes/sandbox-driver.js';
import type { SpoolPosition } from '../sessions/turn-output.repository.js';
import type { Redactor } from './redactor.js';

/** The most that one row holds. Bytes of UTF-8. */
export const MAX_ROW_BYTES = 64 * 1024;

const utf8 = new TextDecoder('utf-8', { ignoreBOM: true });

/** Where a frame begins: in the spool, and after how many bytes of each stream. */
interface FrameStart {
  offset: number;
  stdout: number;
  stderr: number;
  length: number;
}

interface StreamState {
  readonly kind: NewLogRow['kind'];
  /** Bytes that were read and not given out: the start of a character, or of what may be a secret. */
  held: Buffer;
  /** The frames that the held bytes came in. */
  frames: FrameStart[];
  /** Bytes read since this decoder was made, skipped ones included. */
  read: number;
  /** Bytes still to be skipped after a resume. */
  skip: number;
}

/**
 * Turns the raw bytes of a runtime's spool into log rows: whole UTF-8 characters, what is not UTF-8 as U+FFFD, NUL as
 * U+FFFD, known secrets replaced, at most 64 KiB a row.
 *
 * Bytes may have to be held back, each stream's on its own; {@link position} says from which frame on to read again and
 * how many bytes of each stream to skip there, so that a successor gives out exactly what this one did not.
 */
export class OutputDecoder {
  private readonly streams: Record<SpoolChunk['stream'], StreamState>;
  private nextOffset: number;

  constructor(
    private readonly redactor: Redactor,
    from: SpoolPosition,
  ) {
    this.nextOffset = from.offset;
    this.streams = {
      stdout: { kind: LogKind.stdout, held: NOTHING, frames: [], read: 0, skip: from.stdout },
      stderr: { kind: LogKind.stderr, held: NOTHING, frames: [], read: 0, skip: from.stderr },
    };
  }

  /** Takes a chunk; chunks come in the order of the spool, the first one from the position it was made with. */
  push(chunk: SpoolChunk): NewLogRow[] {
    const state = this.streams[chunk.stream];
    const { stdout, stderr } = this.streams;
    state.frames.push({
      offset: chunk.offset,
      stdout: stdout.read,
      stderr: stderr.read,
      length: chunk.data.length,
    });
    state.read += chunk.data.length;
    this.nextOffset = chunk.nextOffset;

    const skipped = Math.min(state.skip, chunk.data.length);
    state.skip -= skipped;
    const fresh = chunk.data.subarray(skipped);
    const bytes = state.held.length === 0 ? fresh : Buffer.concat([state.held, fresh]);
    const settled = Math.min(this.redactor.settled(bytes), bytes.length - unfinished(bytes));
    return this.giveOut(state, bytes, settled);
  }

  /** What is held back, once nothing more will come. */
  finish(): NewLogRow[] {
    return Object.values(this.streams).flatMap((state) =>
      this.giveOut(state, state.held, state.held.length),
    );
  }

  /** Where to go on after all that was given out so far. */
  position(): SpoolPosition {
    const { stdout, stderr } = this.streams;
    const start = [stdout.frames[0], stderr.frames[0]]
      .filter((frame) => frame !== undefined)
      .reduce((first, frame) => (frame.offset < first.offset ? frame : first), {
        offset: this.nextOffset,
        stdout: stdout.read,
        stderr: stderr.read,
        length: 0,
      });
    return {
      offset: start.offset,
      stdout: stdout.read - start.stdout - stdout.held.length + stdout.skip,
      stderr: stderr.read - start.stderr - stderr.held.length + stderr.skip,
    };
  }

  private giveOut(state: StreamState, bytes: Buffer, length: number): NewLogRow[] {
    // A copy: a few held bytes must not keep a whole chunk alive.
    state.held = Buffer.from(bytes.subarray(length));
    let covered = state.frames.reduce((sum, frame) => sum + frame.length, 0);
    while (state.frames[0] && covered - state.frames[0].length >= state.held.length) {
      covered -= state.frames.shift()?.length ?? 0;
    }
    if (length === 0) return [];
    const text = utf8.decode(this.redactor.replace(bytes, length)).replaceAll('\0', '\u{FFFD}');
    return splitText(text, MAX_ROW_BYTES).map((data) => ({ kind: state.kind, data }));
  }
}

const NOTHING = Buffer.alloc(0);

/** How many bytes at the end are the beginning of a UTF-8 character that is not finished. */
export function unfinished(bytes: Buffer): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (byte < 0x80) return 0;
    if (byte >= 0xc2) {
      const length = byte >= 0xf5 ? 1 : byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      return length > back && validStart(bytes, bytes.length - back, back) ? back : 0;
    }
    if (byte >= 0xc0) return 0;
  }
  return 0;
}

/** The second byte rules out overlong forms, surrogates and what is beyond U+10FFFF. */
function validStart(bytes: Buffer, at: number, length: number): boolean {
  if (length < 2) return true;
  const lead = bytes[at] ?? 0;
  const second = bytes[at + 1] ?? 0;
  if (lead === 0xe0) return second >= 0xa0;
  if (lead === 0xed) return second <= 0x9f;
  if (lead === 0xf0) return second >= 0x90;
  if (lead === 0xf4) return second <= 0x8f;
  return true;
}

/** Splits at character boundaries into pieces of at most `maxBytes` bytes of UTF-8. */
export function splitText(text: string, maxBytes: number): string[] {
  if (text.length * 3 <= maxBytes || Buffer.byteLength(text) <= maxBytes) return [text];
  const pieces: string[] = [];
  const bytes = Buffer.from(text);
  for (let start = 0; start < bytes.length;) {
    let end = Math.min(bytes.length, start + maxBytes);
    while (end < bytes.length && ((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
    pieces.push(bytes.toString('utf8', start, end));
    start = end;
  }
  return pieces;
}
