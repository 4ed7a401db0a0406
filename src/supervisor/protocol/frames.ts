/**
 * The frames that a worker and a supervisor exchange over any stream of bytes, little-endian:
 *
 *     0  u32  payload length     4  u8  type     5  u32  number of the call, 0 for frames that belong to none
 *
 * The worker sends `call` (JSON: name and parameters), then `input` and `inputEnd`, or `cancel`. The supervisor sends
 * `hello` (JSON: version) first, then for each call `item`s (u32 length of a JSON header, the header, bytes) and one
 * `end` or `error` (JSON: kind and message), and a `beat` at regular intervals. For backpressure, both sides give
 * `credit` (u32, bytes) for the input and items that they have consumed, and neither sends more of a call than that.
 *
 * The program that serves files (native/file-frames.c) speaks the same frames for one call, without credit. It also sends
 * `content`, the bytes of a file. Such a frame may be of any length, because nobody ever holds all of it.
 */
export const FRAME_TYPES = {
  hello: 1,
  call: 2,
  input: 3,
  inputEnd: 4,
  cancel: 5,
  credit: 6,
  item: 7,
  end: 8,
  error: 9,
  beat: 10,
  content: 11,
} as const;

export type FrameType = keyof typeof FRAME_TYPES;

/** The version of the protocol. It increases when older peers cannot understand it any more. */
export const PROTOCOL_VERSION = 1;
/** The maximum payload: an item of 64 KiB with its header, or the arguments of a call. Bytes. */
export const MAX_PAYLOAD_BYTES = 128 * 1024;
/** The window: how many bytes of input or of items of a call may be sent before the first credit. */
export const INITIAL_CREDIT_BYTES = 256 * 1024;

export const FRAME_HEADER_BYTES = 9;
const TYPES = new Map<number, FrameType>(
  Object.entries(FRAME_TYPES).map(([name, number]) => [number, name as FrameType]),
);

export interface Frame {
  type: FrameType;
  call: number;
  payload: Buffer;
}

/** The peer violated the protocol, so the connection cannot be used any more. */
export class ProtocolError extends Error {}

const NOTHING = Buffer.alloc(0);

export function encodeFrame(
  type: FrameType,
  call: number,
  payload: Buffer | object = NOTHING,
): Buffer {
  const body = Buffer.isBuffer(payload) ? payload : Buffer.from(JSON.stringify(payload));
  return Buffer.concat([encodeHeader(type, call, body.length), body]);
}

/** The header of a frame, for payloads that are sent after it without being copied. @throws ProtocolError */
export function encodeHeader(type: FrameType, call: number, length: number): Buffer {
  if (length > MAX_PAYLOAD_BYTES) throw new ProtocolError(`${type} is too long`);
  const header = Buffer.allocUnsafe(FRAME_HEADER_BYTES);
  header.writeUInt32LE(length, 0);
  header.writeUInt8(FRAME_TYPES[type], 4);
  header.writeUInt32LE(call, 5);
  return header;
}

/** One result of a call: a JSON header and bytes. */
export interface Item {
  header: Record<string, unknown>;
  bytes: Buffer;
}

export function encodeItem(call: number, { header, bytes }: Item): Buffer {
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.allocUnsafe(4);
  length.writeUInt32LE(json.length, 0);
  const size = length.length + json.length + bytes.length;
  return Buffer.concat([encodeHeader('item', call, size), length, json, bytes]);
}

/** @throws ProtocolError */
export function decodeItem(payload: Buffer): Item {
  const length = payload.length < 4 ? Infinity : payload.readUInt32LE(0);
  if (4 + length > payload.length) throw new ProtocolError('an item without its header');
  return {
    header: decodeJson(payload.subarray(4, 4 + length)),
    bytes: payload.subarray(4 + length),
  };
}

/** @throws ProtocolError if it is not a JSON object */
export function decodeJson(payload: Buffer): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(payload.toString('utf8'));
  } catch {
    value = undefined;
  }
  if (typeof value !== 'object' || value === null) throw new ProtocolError('not a JSON object');
  return value as Record<string, unknown>;
}

/** @throws ProtocolError */
export function decodeCredit(payload: Buffer): number {
  if (payload.length !== 4) throw new ProtocolError('not a credit');
  return payload.readUInt32LE(0);
}

export function encodeCredit(call: number, bytes: number): Buffer {
  const payload = Buffer.allocUnsafe(4);
  payload.writeUInt32LE(bytes, 0);
  return encodeFrame('credit', call, payload);
}

/**
 * Assembles frames from pieces of any size. Never holds more than one frame and one piece. Bytes that arrive in one piece
 * are not copied.
 */
export class FrameDecoder {
  private header: Buffer = NOTHING;
  private begun: { frame: Frame; filled: number } | undefined;
  private content: { call: number; left: number } | undefined;

  /** @param options.takesContent yields `content` as it arrives, as frames of any length. Default: refuses it */
  constructor(private readonly options: { takesContent?: boolean } = {}) {}

  /** Whether bytes of a `content` are missing. */
  get isWithinContent(): boolean {
    return this.content !== undefined;
  }

  /** @throws ProtocolError for a frame that is too long, before buffering it */
  push(data: Buffer): Frame[] {
    const frames: Frame[] = [];
    for (let rest = data; rest.length > 0;) rest = rest.subarray(this.take(rest, frames));
    return frames;
  }

  /** @returns how many bytes were taken */
  private take(data: Buffer, frames: Frame[]): number {
    if (this.content !== undefined) return this.takeContent(this.content, data, frames);
    if (this.begun !== undefined) return this.fill(this.begun, data, frames);
    const taken = Math.min(FRAME_HEADER_BYTES - this.header.length, data.length);
    const header = Buffer.concat([this.header, data.subarray(0, taken)]);
    this.header = header.length === FRAME_HEADER_BYTES ? NOTHING : header;
    if (header.length < FRAME_HEADER_BYTES) return taken;
    return taken + this.begin(header, data.subarray(taken), frames);
  }

  /** Begins the frame of a header, whose payload may be there. */
  private begin(header: Buffer, data: Buffer, frames: Frame[]): number {
    const length = header.readUInt32LE(0);
    const type = TYPES.get(header.readUInt8(4));
    const call = header.readUInt32LE(5);
    const isContent = type === 'content' && this.options.takesContent === true;
    const isFrame = type !== undefined && type !== 'content' && length <= MAX_PAYLOAD_BYTES;
    if (isContent) this.content = length === 0 ? undefined : { call, left: length };
    else if (!isFrame) throw new ProtocolError('the peer speaks another protocol');
    else if (data.length >= length) {
      frames.push({ type, call, payload: data.subarray(0, length) });
      return length;
    } else this.begun = { frame: { type, call, payload: Buffer.allocUnsafe(length) }, filled: 0 };
    return 0;
  }

  private fill(begun: { frame: Frame; filled: number }, data: Buffer, frames: Frame[]): number {
    const { frame } = begun;
    const copied = data.copy(frame.payload, begun.filled);
    begun.filled += copied;
    if (begun.filled === frame.payload.length) {
      frames.push(frame);
      this.begun = undefined;
    }
    return copied;
  }

  private takeContent(
    content: { call: number; left: number },
    data: Buffer,
    frames: Frame[],
  ): number {
    const payload = data.subarray(0, content.left);
    content.left -= payload.length;
    if (content.left === 0) this.content = undefined;
    frames.push({ type: 'content', call: content.call, payload });
    return payload.length;
  }
}
