import type { SpoolChunk, SpoolEvent, SpoolExit } from '../../sandbox-driver.js';
import { SandboxError } from '../../sandbox-error.js';
import { FRAME_HEADER_BYTES, MAX_FRAME_PAYLOAD } from '../../shared/spool/spool-format.js';

/**
 * What a follower inside of a container writes to its standard output: one record per event of the spool.
 *
 *     0  u8  1 stdout, 2 stderr, 3 exit     1  u32  payload length     5  u64  offset of the frame in the spool
 *
 * The payload of an exit is JSON. Little-endian.
 */
const HEADER_BYTES = 13;
const KINDS = { stdout: 1, stderr: 2, exit: 3 } as const;
const MAX_EXIT_BYTES = 1024;

export function encodeEvent(event: SpoolEvent): Buffer[] {
  const payload = event.kind === 'chunk' ? event.data : Buffer.from(JSON.stringify(event));
  const header = Buffer.allocUnsafe(HEADER_BYTES);
  header.writeUInt8(event.kind === 'chunk' ? KINDS[event.stream] : KINDS.exit, 0);
  header.writeUInt32LE(payload.length, 1);
  header.writeBigUInt64LE(BigInt(event.kind === 'chunk' ? event.offset : 0), 5);
  return [header, payload];
}

/** Puts events together out of pieces of any size. */
export class EventDecoder {
  private pending: Buffer = Buffer.alloc(0);

  /** @throws SandboxError `unavailable` if this is not what a follower writes */
  push(data: Buffer): SpoolEvent[] {
    this.pending = this.pending.length === 0 ? data : Buffer.concat([this.pending, data]);
    const events: SpoolEvent[] = [];
    let position = 0;
    while (this.pending.length - position >= HEADER_BYTES) {
      const kind = this.pending.readUInt8(position);
      const length = this.pending.readUInt32LE(position + 1);
      const longest = kind === KINDS.exit ? MAX_EXIT_BYTES : MAX_FRAME_PAYLOAD;
      if (kind < 1 || kind > 3 || length > longest) {
        // Where nothing more can be started, it is the engine's complaint that arrives in place of a follower's output.
        throw new SandboxError('unavailable', 'the sandbox cannot be looked into');
      }
      const start = position + HEADER_BYTES;
      if (this.pending.length < start + length) break;
      const offset = Number(this.pending.readBigUInt64LE(position + 5));
      events.push(decode(kind, this.pending.subarray(start, start + length), offset));
      position = start + length;
    }
    this.pending = this.pending.subarray(position);
    return events;
  }
}

function decode(kind: number, payload: Buffer, offset: number): SpoolChunk | SpoolExit {
  if (kind === KINDS.exit) return JSON.parse(payload.toString('utf8')) as SpoolExit;
  return {
    kind: 'chunk',
    stream: kind === KINDS.stdout ? 'stdout' : 'stderr',
    data: payload,
    offset,
    nextOffset: offset + FRAME_HEADER_BYTES + payload.length,
  };
}
