import type { HostClaim } from './peek.js';

const RECORD_HEADER = 5;
const HANDSHAKE_RECORD = 22;
const MAX_RECORD = 16_384;
const CLIENT_HELLO = 1;
const HANDSHAKE_HEADER = 4;
const EXTENSION_SERVER_NAME = 0;
const NAME_TYPE_HOST = 0;

const notTls: HostClaim = { state: 'unnamed', why: 'not a TLS hello' };

/** Reads the server name (SNI) from the start of a TLS connection; the hello may span several records. */
export function readServerName(bytes: Buffer): HostClaim {
  const records: Buffer[] = [];
  let position = 0;
  let gathered = 0;
  while (position + RECORD_HEADER <= bytes.length) {
    const length = bytes.readUInt16BE(position + 3);
    const isHandshake = bytes[position] === HANDSHAKE_RECORD && bytes[position + 1] === 3;
    if (!isHandshake || length === 0 || length > MAX_RECORD) return notTls;
    const payload = bytes.subarray(position + RECORD_HEADER, position + RECORD_HEADER + length);
    records.push(payload);
    gathered += payload.length;
    position += RECORD_HEADER + length;
    if (gathered >= HANDSHAKE_HEADER) {
      const message = Buffer.concat(records);
      if (message[0] !== CLIENT_HELLO) return notTls;
      const end = HANDSHAKE_HEADER + message.readUIntBE(1, 3);
      if (message.length >= end) return serverNameOf(message.subarray(HANDSHAKE_HEADER, end));
    }
  }
  return bytes.length > 0 && bytes[0] !== HANDSHAKE_RECORD ? notTls : { state: 'incomplete' };
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
    // Two names would leave it to the server which of them counts.
    if (others.length > 0) return { state: 'unnamed', why: 'several server names' };
    return { state: 'named', host };
  } catch (error) {
    if (error instanceof RangeError) return { state: 'unnamed', why: 'a broken TLS hello' };
    throw error;
  }
}

/** Reads length-prefixed fields; running past the end is a RangeError. */
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
