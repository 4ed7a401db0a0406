import type { Socket } from 'node:net';

const RECORD_HEADER = 5;
const HANDSHAKE_RECORD = 22;
const MAX_RECORD = 16_384;
const CLIENT_HELLO = 1;
const HANDSHAKE_HEADER = 4;
const EXTENSION_SERVER_NAME = 0;
const NAME_TYPE_HOST = 0;
/** Enough for most hellos. Bytes. */
const INITIAL_MESSAGE = 2048;

const notTls: HostClaim = { state: 'unnamed', why: 'not a TLS hello' };

/**
 * Reads the server name (SNI) from the start of a TLS connection. The hello may span several records, and arrive in any
 * pieces: each byte is copied once, and the hello is parsed once, when all of it is there.
 */
export class ServerNameReader implements ClaimReader {
  private readonly header = Buffer.alloc(RECORD_HEADER);
  private headerLength = 0;
  /** The remaining bytes of the current record. */
  private recordRest = 0;
  private message = Buffer.alloc(INITIAL_MESSAGE);
  private messageLength = 0;

  push(chunk: Buffer): HostClaim {
    for (let at = 0; at < chunk.length;) {
      if (this.recordRest === 0) {
        const taken = chunk.copy(this.header, this.headerLength, at);
        at += taken;
        this.headerLength += taken;
        if (!this.isHeaderPossible()) return notTls;
        if (this.headerLength < RECORD_HEADER) return { state: 'incomplete' };
        this.headerLength = 0;
        this.recordRest = this.header.readUInt16BE(3);
        if (this.recordRest === 0 || this.recordRest > MAX_RECORD) return notTls;
      }
      const payload = chunk.subarray(at, at + this.recordRest);
      at += payload.length;
      this.recordRest -= payload.length;
      this.append(payload);
      const claim = this.claim();
      if (claim.state !== 'incomplete') return claim;
    }
    return { state: 'incomplete' };
  }

  private isHeaderPossible(): boolean {
    const [type, major] = this.header;
    return type === HANDSHAKE_RECORD && (this.headerLength < 2 || major === 3);
  }

  private append(payload: Buffer): void {
    const length = this.messageLength + payload.length;
    if (length > this.message.length) {
      const larger = Buffer.alloc(2 * length);
      this.message.copy(larger, 0, 0, this.messageLength);
      this.message = larger;
    }
    payload.copy(this.message, this.messageLength);
    this.messageLength = length;
  }

  private claim(): HostClaim {
    if (this.messageLength < HANDSHAKE_HEADER) return { state: 'incomplete' };
    if (this.message[0] !== CLIENT_HELLO) return notTls;
    const end = HANDSHAKE_HEADER + this.message.readUIntBE(1, 3);
    if (this.messageLength < end) return { state: 'incomplete' };
    return serverNameOf(this.message.subarray(HANDSHAKE_HEADER, end));
  }
}

function serverNameOf(hello: Buffer): HostClaim {
  try {
    const reader = new Reader(hello);
    reader.skip(2 + 32);
    reader.skip(reader.uint(1));
    reader.skip(reader.uint(2));
    reader.skip(reader.uint(1));
    const hosts: string[] = [];
    const extensions = reader.remaining > 0 ? new Reader(reader.take(reader.uint(2))) : reader;
    while (extensions.remaining > 0) {
      const type = extensions.uint(2);
      const body = extensions.take(extensions.uint(2));
      if (type !== EXTENSION_SERVER_NAME) continue;
      const list = new Reader(body);
      const names = new Reader(list.take(list.uint(2)));
      while (names.remaining > 0) {
        const nameType = names.uint(1);
        const name = names.take(names.uint(2));
        if (nameType === NAME_TYPE_HOST) hosts.push(name.toString('latin1'));
      }
    }
    const [host, ...others] = hosts;
    if (host === undefined) return { state: 'unnamed', why: 'no server name in the TLS hello' };
    // With two names, the server would decide which one counts.
    if (others.length > 0) return { state: 'unnamed', why: 'several server names' };
    return { state: 'named', host };
  } catch (error) {
    if (error instanceof RangeError) return { state: 'unnamed', why: 'a broken TLS hello' };
    throw error;
  }
}

/** Reads length-prefixed fields. Throws a RangeError at the end of the data. */
class Reader {
  private position = 0;

  constructor(private readonly bytes: Buffer) {}

  get remaining(): number {
    return this.bytes.length - this.position;
  }

  uint(size: 1 | 2): number {
    return this.take(size).readUIntBE(0, size);
  }

  skip(length: number): void {
    this.take(length);
  }

  take(length: number): Buffer {
    if (length > this.remaining) throw new RangeError('past the end');
    this.position += length;
    return this.bytes.subarray(this.position - length, this.position);
  }
}

/** The host that a client names in the first bytes of its connection. */
export type HostClaim =
  | { state: 'incomplete' }
  | { state: 'named'; host: string }
  /** The reason why it names no host. */
  | { state: 'unnamed'; why: string };

/** Parses a claim from pieces of data, reading each byte O(1) times. */
export interface ClaimReader {
  /** Adds data. Must not be called after the claim is complete. */
  push(chunk: Buffer): HostClaim;
}

export interface Peeked {
  /** Everything read so far, which must be forwarded first. */
  bytes: Buffer;
  claim: HostClaim;
}

/**
 * Reads from a paused socket until the reader knows the client's host, and leaves the socket paused. Never rejects: a
 * client that is too slow, sends too much or disconnects results in an `unnamed` claim.
 */
export function peekHost(
  socket: Socket,
  reader: ClaimReader,
  limits: { maxBytes: number; timeoutMs: number },
): Promise<Peeked> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const settle = (claim: HostClaim): void => {
      clearTimeout(timer);
      socket.off('data', onData).off('end', onEnd).off('close', onEnd);
      socket.pause();
      resolve({ bytes: Buffer.concat(chunks), claim });
    };
    const onEnd = (): void => settle({ state: 'unnamed', why: 'the client left' });
    const onData = (chunk: Buffer): void => {
      chunks.push(chunk);
      length += chunk.length;
      const claim = reader.push(chunk);
      if (claim.state !== 'incomplete') settle(claim);
      else if (length >= limits.maxBytes) {
        settle({ state: 'unnamed', why: 'the first message is too long' });
      }
    };
    const timer = setTimeout(
      () => settle({ state: 'unnamed', why: 'the first message took too long' }),
      limits.timeoutMs,
    );
    socket.on('data', onData).on('end', onEnd).on('close', onEnd);
    socket.resume();
  });
}
