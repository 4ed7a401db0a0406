import { storableText } from '../common/storable.js';
import { LogKind, type NewLogRow } from '../event-log/event-log.repository.js';
import type { SpoolChunk } from '../sandboxes/driver/sandbox-driver.js';
import type { SpoolPosition } from './turn-output.repository.js';
import { ByteQueue, type Redactor, replaceRegions } from './redaction/redactor.js';
import type { SecretScanner } from './redaction/secret-automaton.js';
import type {
  AgentRuntime,
  Outcome,
  OutcomeState,
  ReportedTokens,
} from '../runtimes/agent-runtime.js';

/** The maximum size of a row. Bytes of UTF-8. */
export const MAX_ROW_BYTES = 64 * 1024;

const utf8 = new TextDecoder('utf-8', { ignoreBOM: true });

/** At most one position to resume from is remembered for this many bytes of a stream, however small its frames are. */
const BYTES_PER_FRAME_START = 4096;

/** Where a frame begins: its offset in the spool, and the bytes of each stream before it. */
interface FrameStart {
  offset: number;
  stdout: number;
  stderr: number;
}

/** Positions count from the first byte that this decoder received. */
interface StreamState {
  readonly name: SpoolChunk['stream'];
  readonly kind: NewLogRow['kind'];
  readonly scanner: SecretScanner;
  /** Bytes that were read but not released yet: the start of a character, or of a possible secret. */
  readonly held: ByteQueue;
  /** Frames to resume from. The first one is at or before the start of a possible secret that is incomplete so far. */
  frames: FrameStart[];
  /** The position up to which the stream was read. */
  read: number;
  /**
   * The position up to which bytes were released. After a resume it is ahead of `read`, until the bytes that were
   * released earlier have been skipped.
   */
  given: number;
}

/**
 * Converts the raw bytes of a runtime's spool to log rows of at most 64 KiB. Rows contain whole UTF-8 characters.
 * Invalid bytes and NUL become U+FFFD, and known secrets are replaced.
 *
 * The decoder may have to hold bytes back, separately for each stream. {@link position} returns the frame from which a
 * successor reads again and how many bytes of each stream it skips there, so that it releases exactly the bytes that
 * this decoder did not. The successor also scans the skipped bytes, because a secret may begin there.
 */
export class OutputDecoder {
  private readonly streams: Record<SpoolChunk['stream'], StreamState>;
  private nextOffset: number;

  constructor(redactor: Redactor, from: SpoolPosition) {
    this.nextOffset = from.offset;
    const stream = (name: SpoolChunk['stream'], kind: NewLogRow['kind']): StreamState => ({
      name,
      kind,
      scanner: redactor.scanner(from[name]),
      held: new ByteQueue(),
      frames: [],
      read: 0,
      given: from[name],
    });
    this.streams = {
      stdout: stream('stdout', LogKind.stdout),
      stderr: stream('stderr', LogKind.stderr),
    };
  }

  /** The smallest offset at which the next chunk may begin. */
  get next(): number {
    return this.nextOffset;
  }

  /** Decodes a chunk. Chunks must come in the order of the spool, starting at the decoder's initial position. */
  push(chunk: SpoolChunk): NewLogRow[] {
    const state = this.streams[chunk.stream];
    const { stdout, stderr } = this.streams;
    const last = state.frames.at(-1);
    if (last === undefined || state.read - last[state.name] >= BYTES_PER_FRAME_START) {
      state.frames.push({ offset: chunk.offset, stdout: stdout.read, stderr: stderr.read });
    }
    const skipped = Math.min(Math.max(state.given - state.read, 0), chunk.data.length);
    state.read += chunk.data.length;
    this.nextOffset = chunk.nextOffset;
    state.scanner.scan(chunk.data);

    const fresh = chunk.data.subarray(skipped);
    const direct = state.held.length === 0;
    if (!direct) state.held.append(fresh);
    const bytes = direct ? fresh : state.held.view();
    const settled = Math.min(state.scanner.settled(), state.read - unfinished(bytes));
    const length = Math.max(settled - state.given, 0);
    const rows = giveOut(state, bytes.subarray(0, length));
    if (direct) state.held.append(fresh.subarray(length));
    else state.held.drop(length);
    forgetFrames(state);
    return rows;
  }

  /** Call at the end of the spool. @returns the rows that were held back */
  finish(): NewLogRow[] {
    return Object.values(this.streams).flatMap((state) => {
      const rows = giveOut(state, state.held.view());
      state.held.drop(state.held.length);
      state.frames = [];
      return rows;
    });
  }

  /** The position at which a successor continues after the rows that were released so far. */
  position(): SpoolPosition {
    const { stdout, stderr } = this.streams;
    const start = [stdout.frames[0], stderr.frames[0]]
      .filter((frame) => frame !== undefined)
      .reduce((first, frame) => (frame.offset < first.offset ? frame : first), {
        offset: this.nextOffset,
        stdout: stdout.read,
        stderr: stderr.read,
      });
    return {
      offset: start.offset,
      stdout: stdout.given - start.stdout,
      stderr: stderr.given - start.stderr,
    };
  }
}

/** Converts the next bytes of a stream to rows. */
function giveOut(state: StreamState, bytes: Buffer): NewLogRow[] {
  if (bytes.length === 0) return [];
  const from = state.given;
  state.given += bytes.length;
  const regions = state.scanner.release(state.given);
  const clean = regions.length === 0 ? bytes : replaceRegions(bytes, from, regions);
  const text = storableText(utf8.decode(clean));
  return splitText(text, MAX_ROW_BYTES).map((data) => ({ kind: state.kind, data }));
}

/** Forgets the frames that a successor does not need to read again. */
function forgetFrames(state: StreamState): void {
  const needed = Math.min(state.scanner.open, state.given);
  if (needed >= state.read) {
    state.frames = [];
    return;
  }
  const first = state.frames.findIndex(
    (_, index) => (state.frames[index + 1]?.[state.name] ?? Infinity) > needed,
  );
  if (first > 0) state.frames.splice(0, first);
}

/** The number of bytes at the end that are the beginning of an incomplete UTF-8 character. */
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

/** The second byte rules out overlong forms, surrogates, and code points beyond U+10FFFF. */
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

/** Longer lines are not parsed. Characters. */
const MAX_LINE = 4 * 2 ** 20;
/** A longer partial line is not handed over to a successor, because it is stored with every commit. Characters. */
const MAX_CARRIED = 64 * 2 ** 10;
/** The longest reason of a failure. Characters. */
const MAX_REASON = 500;
/** From this exit code on, shells report signals. */
const FIRST_SIGNAL_CODE = 128;

/** Reads the outcome from a runtime's output, because its exit code may be wrong, and the tokens that it reports. */
export class OutcomeTracker {
  /** The pieces of a line whose end has not arrived yet. */
  private pieces: string[] = [];
  private length = 0;
  private outcome: Outcome;
  private tokens: ReportedTokens | undefined;
  private incomplete: boolean;

  /** @param from the predecessor's state at the position where this one continues */
  constructor(
    private readonly runtime: Pick<AgentRuntime, 'judge'>,
    private readonly redactor: Redactor,
    from: OutcomeState = {},
  ) {
    const { partial = '', incomplete = false, tokens, ...outcome } = from;
    this.keep(partial);
    this.tokens = tokens;
    this.outcome = outcome;
    this.incomplete = incomplete;
  }

  /** Takes rows in the order of the log. */
  take(rows: readonly NewLogRow[]): void {
    if (!this.runtime.judge) return;
    for (const { kind, data } of rows) {
      if (kind !== LogKind.stdout) continue;
      // Searches only the new data, so that an endless line does not cost more with each piece.
      const lines = data.split('\n');
      const rest = lines.pop() ?? '';
      for (const line of lines) {
        this.keep(line);
        this.judge(this.takeLine());
      }
      this.keep(rest);
    }
  }

  private judge(line: string): void {
    const judgement = this.runtime.judge?.(line);
    if (!judgement) return;
    const { reason, tokens, ...rest } = judgement;
    if (tokens?.of === 'step')
      this.tokens = { count: (this.tokens?.count ?? 0) + tokens.count, of: 'turn' };
    else if (tokens) this.tokens = tokens;
    // The line was redacted, but JSON can encode a secret in ways that only decoding reveals.
    this.outcome =
      reason === undefined
        ? rest
        : { ...rest, reason: storableText(this.redactor.redact(reason), MAX_REASON) };
  }

  private keep(piece: string): void {
    if (piece === '') return;
    this.pieces.push(piece);
    this.length += piece.length;
    if (this.length > MAX_LINE) {
      this.takeLine();
      this.incomplete = true;
    }
  }

  private takeLine(): string {
    const line = this.pieces.join('');
    this.pieces = [];
    this.length = 0;
    return line;
  }

  /** The tokens that the program has reported so far; `undefined` if it has not. */
  get reportedTokens(): ReportedTokens | undefined {
    return this.tokens;
  }

  /** The state for a successor that continues after these rows; `undefined` if there is none. */
  state(): OutcomeState | undefined {
    if (!this.runtime.judge) return undefined;
    const carried = this.length <= MAX_CARRIED;
    const incomplete = this.incomplete || !carried;
    return {
      ...this.outcome,
      ...(this.tokens && { tokens: this.tokens }),
      ...(this.length > 0 && carried ? { partial: this.pieces.join('') } : {}),
      ...(incomplete ? { incomplete } : {}),
    };
  }

  /**
   * The exit code to report after all output: not 0 if the turn failed, and not one that looks like a signal if the
   * program itself reported a reason.
   */
  correct(exitCode: number): { exitCode: number; reason: string | null } {
    if (!this.runtime.judge) return { exitCode, reason: null };
    if (this.length > 0) this.take([{ kind: LogKind.stdout, data: '\n' }]);
    const { verdict, reason } = this.outcome;
    if (verdict === 'failed') {
      const plain = exitCode > 0 && exitCode < FIRST_SIGNAL_CODE;
      return { exitCode: plain ? exitCode : 1, reason: reason ?? null };
    }
    if (exitCode === 0 && verdict === undefined && !this.incomplete) {
      return { exitCode: 1, reason: 'The runtime ended without saying that it has finished' };
    }
    return { exitCode, reason: null };
  }
}
