import { describe, expect, it } from '@jest/globals';
import type { SpoolChunk } from '../sandboxes/driver/sandbox-driver.js';
import { OutputDecoder, splitText } from './output-decoder.js';
import { Redactor } from './redaction/redactor.js';

const START = { offset: 0, stdout: 0, stderr: 0 };
type Piece = [SpoolChunk['stream'], Buffer | string];

/** Frames with a header of 10 bytes each, as a spool would have them. */
function frames(pieces: readonly Piece[]): SpoolChunk[] {
  let offset = 0;
  return pieces.map(([stream, content]) => {
    const data = Buffer.from(content);
    const chunk = { kind: 'chunk', stream, data, offset, nextOffset: offset + 10 + data.length };
    offset = chunk.nextOffset;
    return chunk as SpoolChunk;
  });
}

function decode(pieces: readonly Piece[], secrets: string[] = []) {
  const decoder = new OutputDecoder(Redactor.of(secrets), START);
  const rows = [...frames(pieces).flatMap((chunk) => decoder.push(chunk)), ...decoder.finish()];
  const textOf = (kind: number) =>
    rows
      .filter((row) => row.kind === kind)
      .map((row) => row.data)
      .join('');
  return { rows, stdout: textOf(1), stderr: textOf(2) };
}

describe('OutputDecoder', () => {
  it('never breaks a character that is split over writes, whatever comes in between', () => {
    const text = 'a€😀ü';
    const bytes = Buffer.from(text);
    const pieces = [...bytes].flatMap((byte): Piece[] => [
      ['stdout', Buffer.from([byte])],
      ['stderr', '.'],
    ]);
    const { stdout, stderr, rows } = decode(pieces);
    expect(stdout).toBe(text);
    expect(stderr).toBe('.'.repeat(bytes.length));
    expect(rows.some((row) => row.data.includes('\u{FFFD}'))).toBe(false);
  });

  it('shows bytes that are not UTF-8, and NUL, as U+FFFD', () => {
    const { stdout } = decode([
      ['stdout', Buffer.from([0x61, 0xff, 0x00, 0xc3, 0x28, 0xe2, 0x82])],
    ]);
    expect(stdout).toBe('a\u{FFFD}\u{FFFD}\u{FFFD}(\u{FFFD}');
  });

  it('does not wait for the rest of what can no longer become a character', () => {
    const decoder = new OutputDecoder(Redactor.of([]), START);
    const [chunk] = frames([['stdout', Buffer.from([0x61, 0xed, 0xa0])]]);
    expect(
      decoder
        .push(chunk as SpoolChunk)
        .map((row) => row.data)
        .join(''),
    ).toMatch(/^a\u{FFFD}+$/u);
  });

  it('replaces secrets that are split anywhere, and no others', () => {
    const secret = 's3cr3t-value';
    const text = `x ${secret}${secret} s3cr3t-valu y s3cr`;
    for (let cut = 1; cut < text.length; cut += 1) {
      const { stdout } = decode(
        [
          ['stdout', text.slice(0, cut)],
          ['stdout', text.slice(cut)],
        ],
        [secret],
      );
      expect(stdout).toBe('x [redacted][redacted] s3cr3t-valu y s3cr');
    }
  });

  it('gives no part of overlapping secrets away, byte by byte', () => {
    const secrets = ['abcdefgh', 'efghijkl', 'abcdefghXY'];
    for (const [text, expected] of [
      ['-abcdefghijkl-', '-[redacted]-'],
      ['-abcdefghXY-', '-[redacted]-'],
      ['-abcdefghX-', '-[redacted]X-'],
    ] as const) {
      const pieces = Array.from(text, (character): Piece => ['stdout', character]);
      expect(decode(pieces, secrets).stdout).toBe(expected);
    }
  });

  it('holds at most 64 KiB in a row and loses nothing of a long line', () => {
    const line = '€'.repeat(1_000_000);
    const bytes = Buffer.from(line);
    const pieces: Piece[] = [];
    for (let at = 0; at < bytes.length; at += 65_536) {
      pieces.push(['stdout', bytes.subarray(at, at + 65_536)]);
    }
    const { stdout, rows } = decode(pieces);
    expect(stdout === line).toBe(true);
    expect(Math.max(...rows.map((row) => Buffer.byteLength(row.data)))).toBeLessThanOrEqual(65_536);
  });

  it('resumes from any position with nothing lost and nothing repeated', () => {
    const secrets = ['password-one', 'one-and-more'];
    const pieces: Piece[] = [
      ['stdout', 'a password-o'],
      ['stderr', 'error €'],
      ['stderr', Buffer.from([0xf0, 0x9f])],
      ['stdout', 'ne-and-more b'],
      ['stderr', Buffer.from([0x98, 0x80, 0x21])],
      ['stdout', 'password-'],
      ['stdout', 'x'],
      ['stdout', 'password-on'],
    ];
    const all = frames(pieces);
    const whole = decode(pieces, secrets);
    // Every chain of two interruptions.
    for (let first = 0; first <= all.length; first += 1) {
      for (let second = 0; second <= all.length; second += 1) {
        const texts = { 1: '', 2: '' };
        let position = START;
        for (const count of [first, second, Infinity]) {
          const decoder = new OutputDecoder(Redactor.of(secrets), position);
          const rest = all.filter((chunk) => chunk.offset >= position.offset);
          const rows = rest.slice(0, count).flatMap((chunk) => decoder.push(chunk));
          if (count === Infinity) rows.push(...decoder.finish());
          for (const row of rows) texts[row.kind as 1 | 2] += row.data;
          position = decoder.position();
        }
        expect(texts).toEqual({ 1: whole.stdout, 2: whole.stderr });
      }
    }
    expect(whole.stdout).toBe('a [redacted] bpassword-xpassword-on');
    expect(whole.stderr).toBe('error €😀!');
  });
});

describe('splitText', () => {
  it('cuts at character boundaries', () => {
    expect(splitText('€€€', 7)).toEqual(['€€', '€']);
    expect(splitText('abc', 3)).toEqual(['abc']);
  });
});

describe('OutputDecoder and secrets', () => {
  /** Reads frames from a position on, stopping after some of them, as often as told. */
  function interrupted(all: SpoolChunk[], redactor: Redactor, stops: readonly number[]) {
    const texts = { 1: '', 2: '' };
    let position = START;
    for (const count of [...stops, Infinity]) {
      const decoder = new OutputDecoder(redactor, position);
      const rest = all.filter((chunk) => chunk.offset >= position.offset);
      const rows = rest.slice(0, count).flatMap((chunk) => decoder.push(chunk));
      if (count === Infinity) rows.push(...decoder.finish());
      for (const row of rows) texts[row.kind as 1 | 2] += row.data;
      position = decoder.position();
    }
    return texts;
  }

  it('finds secrets in any pieces and after any interruptions', () => {
    const secrets = ['abababab', 'babababc"x', 'abababab\nabababababababab', 'a"b"a"b"a"b'];
    const redactor = Redactor.of(secrets);
    let state = 7;
    const next = (below: number): number => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
      return (state >>> 8) % below;
    };
    for (let round = 0; round < 150; round += 1) {
      const piece = (): string => {
        const secret = secrets[next(secrets.length)] ?? '';
        const text = next(2) === 0 ? secret : JSON.stringify(secret).slice(1, -1);
        return [text, text.slice(0, next(text.length)), 'ab'.repeat(next(9)), 'é'][next(4)] ?? '';
      };
      const texts = {
        stdout: Array.from({ length: 12 }, piece).join(''),
        stderr: Array.from({ length: 12 }, piece).join(''),
      };
      const pieces: Piece[] = [];
      const rest = { stdout: Buffer.from(texts.stdout), stderr: Buffer.from(texts.stderr) };
      while (rest.stdout.length + rest.stderr.length > 0) {
        const stream = next(2) === 0 ? 'stdout' : 'stderr';
        const length = 1 + next(7);
        if (rest[stream].length > 0) pieces.push([stream, rest[stream].subarray(0, length)]);
        rest[stream] = rest[stream].subarray(length);
      }
      const all = frames(pieces);
      const stops = Array.from({ length: next(5) }, () => next(pieces.length));
      expect(interrupted(all, redactor, stops)).toEqual({
        1: redactor.redact(texts.stdout),
        2: redactor.redact(texts.stderr),
      });
    }
  });

  it('gives out a long stretch of overlapping secrets in parts, and none of it in the clear', () => {
    const redactor = Redactor.of(['aaaaaaaa']);
    const all = frames(Array.from({ length: 50 }, () => ['stdout', 'a'.repeat(5000)] as Piece));
    const decoder = new OutputDecoder(redactor, START);
    const rows = all.flatMap((chunk) => decoder.push(chunk));
    expect(rows.length).toBeGreaterThan(1);
    const text = [...rows, ...decoder.finish()].map((row) => row.data).join('');
    expect(text).toMatch(/^(\[redacted\])+$/);
    // Wherever it is taken over: the successor scans what may be a secret's beginning, too.
    for (let stop = 1; stop <= all.length; stop += 7) {
      expect(interrupted(all, redactor, [stop])[1]).toMatch(/^(\[redacted\])+$/);
    }
  });

  it('resumes near where it was, however many small frames came before', () => {
    const decoder = new OutputDecoder(Redactor.of(['a'.repeat(300_000)]), START);
    const all = frames(Array.from({ length: 200_000 }, () => ['stdout', 'a'] as Piece));
    for (const chunk of all) decoder.push(chunk);
    expect(decoder.position()).toEqual({ offset: 0, stdout: 0, stderr: 0 });
    const [last] = frames([['stdout', 'b']]);
    const at = 200_000 * 11;
    const rows = decoder.push({ ...(last as SpoolChunk), offset: at, nextOffset: at + 11 });
    expect(rows.map((row) => row.data.length).reduce((a, b) => a + b, 0)).toBe(200_001);
    expect(decoder.position()).toEqual({ offset: at + 11, stdout: 0, stderr: 0 });
  });
});
