import { crc32 } from 'node:zlib';
import { closeSync, constants, openSync, writevSync } from 'node:fs';

/**
 * The spool: one append-only file per launch, a sequence of frames. A frame is a 20-byte header (little-endian) and the
 * unchanged bytes of one read:
 *
 *     0  u16  magic        4  u32  payload length     16  u32  CRC-32 of bytes 0 to 15 and the payload
 *     2  u8   stream       8  u64  microseconds
 *     3  u8   0               since 1970
 */
export const FRAME_HEADER_BYTES = 20;
/** The longest payload of a frame: 64 KiB. */
export const MAX_FRAME_PAYLOAD = 64 * 1024;

const MAGIC = 0x5341;
const STREAMS = { stdout: 1, stderr: 2 } as const;

export type SpoolStream = keyof typeof STREAMS;

export interface Frame {
  stream: SpoolStream;
  payload: Buffer;
  /** Header and payload. */
  bytes: number;
}

/** The header of a frame with this payload, which follows it in the spool. */
export function encodeFrameHeader(stream: SpoolStream, payload: Buffer, micros: number): Buffer {
  const header = Buffer.allocUnsafe(FRAME_HEADER_BYTES);
  header.writeUInt16LE(MAGIC, 0);
  header.writeUInt8(STREAMS[stream], 2);
  header.writeUInt8(0, 3);
  header.writeUInt32LE(payload.length, 4);
  header.writeBigUInt64LE(BigInt(Math.round(micros)), 8);
  header.writeUInt32LE(crc32(payload, crc32(header.subarray(0, 16))), 16);
  return header;
}

/**
 * Reads the frame at `position`. `incomplete`: it may become complete when more bytes arrive. `corrupt`: it will not,
 * except that the end of a file that is being appended to may look like this for a moment. The payload is a view of
 * `buffer`.
 */
export function decodeFrame(buffer: Buffer, position: number): Frame | 'incomplete' | 'corrupt' {
  if (buffer.length - position < FRAME_HEADER_BYTES) return 'incomplete';
  const stream = buffer.readUInt8(position + 2);
  const length = buffer.readUInt32LE(position + 4);
  if (
    buffer.readUInt16LE(position) !== MAGIC ||
    (stream !== STREAMS.stdout && stream !== STREAMS.stderr) ||
    length === 0 ||
    length > MAX_FRAME_PAYLOAD
  ) {
    return 'corrupt';
  }
  const start = position + FRAME_HEADER_BYTES;
  if (buffer.length < start + length) return 'incomplete';
  const payload = buffer.subarray(start, start + length);
  const expected = crc32(payload, crc32(buffer.subarray(position, position + 16)));
  if (buffer.readUInt32LE(position + 16) !== expected) return 'corrupt';
  return {
    stream: stream === STREAMS.stdout ? 'stdout' : 'stderr',
    payload,
    bytes: FRAME_HEADER_BYTES + length,
  };
}

/** Appends frames to a spool, unbuffered: a killed supervisor leaves at most one torn frame at the end. */
export class SpoolWriter {
  private readonly fd: number;

  constructor(path: string) {
    const flags =
      constants.O_WRONLY |
      constants.O_CREAT |
      constants.O_EXCL |
      constants.O_APPEND |
      constants.O_NOFOLLOW;
    this.fd = openSync(path, flags, 0o600);
  }

  /** @throws errors of the file system, such as ENOSPC */
  append(stream: SpoolStream, payload: Buffer): void {
    const micros = (performance.timeOrigin + performance.now()) * 1000;
    const header = encodeFrameHeader(stream, payload, micros);
    const total = FRAME_HEADER_BYTES + payload.length;
    let written = writevSync(this.fd, [header, payload]);
    while (written < total) {
      // Only an almost full file system writes less than requested. The next write then throws.
      const rest = Buffer.concat([header, payload]).subarray(written);
      written += writevSync(this.fd, [rest]);
    }
  }

  close(): void {
    closeSync(this.fd);
  }
}
