import { connect } from 'node:tls';
import { Duplex } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it } from '@jest/globals';
import { ServerNameReader, type HostClaim } from './client-hello.js';

/** The first flight of a real TLS client. */
function helloOf(servername: string): Promise<Buffer> {
  return new Promise((resolve) => {
    const wire = new Duplex({
      read: () => undefined,
      write: (chunk: Buffer) => resolve(chunk),
    });
    connect({ socket: wire, servername, rejectUnauthorized: false }).on('error', () => undefined);
  });
}

const readServerName = (bytes: Buffer): HostClaim => new ServerNameReader().push(bytes);

const u16 = (value: number): Buffer => Buffer.from([value >> 8, value & 0xff]);
const sized = (body: Buffer): Buffer => Buffer.concat([u16(body.length), body]);
const extension = (type: number, body: Buffer): Buffer => Buffer.concat([u16(type), sized(body)]);
const hostName = (name: string): Buffer =>
  Buffer.concat([Buffer.from([0]), sized(Buffer.from(name))]);
const serverName = (...names: string[]): Buffer =>
  extension(0, sized(Buffer.concat(names.map(hostName))));

function hello(...extensions: Buffer[]): Buffer {
  const body = Buffer.concat([
    u16(0x0303),
    Buffer.alloc(32),
    Buffer.from([0]),
    sized(u16(0x1301)),
    Buffer.from([1, 0]),
    sized(Buffer.concat(extensions)),
  ]);
  return Buffer.concat([Buffer.from([1, 0]), u16(body.length), body]);
}

const record = (payload: Buffer): Buffer =>
  Buffer.concat([Buffer.from([22, 3, 1]), sized(payload)]);

describe('readServerName', () => {
  it('reads the name that a real client sends, once all of the hello is there', async () => {
    const bytes = await helloOf('api.example.com');
    expect(readServerName(bytes)).toEqual({ state: 'named', host: 'api.example.com' });
    for (const length of [0, 1, 4, 5, 9, 60, bytes.length - 1]) {
      expect(readServerName(bytes.subarray(0, length))).toEqual({ state: 'incomplete' });
    }
  });

  it('says that a real client sent none', async () => {
    expect(readServerName(await helloOf(''))).toEqual({
      state: 'unnamed',
      why: expect.stringContaining('no server name'),
    });
  });

  it('reads a hello that is cut into records of a few bytes', () => {
    const message = hello(extension(10, u16(0)), serverName('a.example'));
    const records: Buffer[] = [];
    for (let i = 0; i < message.length; i += 3) records.push(record(message.subarray(i, i + 3)));
    expect(readServerName(Buffer.concat(records))).toEqual({ state: 'named', host: 'a.example' });
    expect(readServerName(Buffer.concat(records.slice(0, -1)))).toEqual({ state: 'incomplete' });
  });

  it('reads one in any pieces', async () => {
    const message = hello(extension(10, u16(0)), serverName('a.example'));
    const cut = [0, 1, 2, 3].map((i) => message.subarray(i, i + 1)).concat(message.subarray(4));
    for (const bytes of [await helloOf('a.example'), Buffer.concat(cut.map(record))]) {
      for (const size of [1, 2, 3, 7, 100]) {
        const reader = new ServerNameReader();
        const claims = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
          reader.push(bytes.subarray(i * size, (i + 1) * size)),
        );
        expect(claims.slice(0, -1).every(({ state }) => state === 'incomplete')).toBe(true);
        expect(claims.at(-1)).toEqual({ state: 'named', host: 'a.example' });
      }
    }
  });

  it('takes linear time for a hello that comes byte by byte in records of one byte', async () => {
    const never = Buffer.concat([Buffer.from([1, 0xff, 0xff, 0xff]), Buffer.alloc(20_000)]);
    const reader = new ServerNameReader();
    // Parsed anew for each piece, it takes hours. It yields, so that the limit of the test can end it.
    for (const byte of never) {
      for (const piece of record(Buffer.from([byte]))) reader.push(Buffer.from([piece]));
      await nextTurn();
    }
    expect(reader.push(Buffer.alloc(0)).state).toBe('incomplete');
  }, 60_000);

  it.each<[string, Buffer]>([
    ['several server names', record(hello(serverName('a.example', 'b.example')))],
    ['several server names', record(hello(serverName('a.example'), serverName('b.example')))],
    ['no server name', record(hello())],
    ['broken', record(hello(Buffer.from([0, 0, 0, 9, 0, 7, 0])))],
    ['broken', record(hello(extension(0, Buffer.from([0]))))],
    ['not a TLS hello', Buffer.from('GET / HTTP/1.1\r\n')],
    ['not a TLS hello', Buffer.from('G')],
    ['not a TLS hello', record(Buffer.from([2, 0, 0, 1, 0]))],
    ['not a TLS hello', Buffer.from([22, 3, 1, 0xff, 0xff])],
    ['not a TLS hello', Buffer.from([22, 3, 1, 0, 0])],
  ])('finds no name: %s', (why, bytes) => {
    expect(readServerName(bytes)).toEqual({
      state: 'unnamed',
      why: expect.stringContaining(why),
    });
  });
});
