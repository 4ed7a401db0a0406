import { once } from 'node:events';
import { duplexPair } from 'node:stream';
import { describe, expect, it } from '@jest/globals';
import { CallConnection, ConnectionLost } from './call-client.js';
import { serveCalls } from './call-server.js';
import {
  encodeFrame,
  encodeItem,
  FrameDecoder,
  MAX_PAYLOAD_BYTES,
  PROTOCOL_VERSION,
  ProtocolError,
} from './frames.js';

describe('calls', () => {
  it('send no more than the other side has room for, and do not hold each other up', async () => {
    const [near, far] = duplexPair();
    let sent = 0;
    const served = serveCalls(far, {
      async *flood() {
        for (;;) {
          sent += 1;
          yield { header: {}, bytes: Buffer.alloc(60_000) };
        }
      },
      async *quick({ input }) {
        let bytes = 0;
        for await (const piece of input) bytes += piece.length;
        yield { header: { bytes }, bytes: Buffer.alloc(0) };
      },
    });
    const connection = new CallConnection(near);
    const { signal } = new AbortController();
    const flood = connection.call({ name: 'flood', parameters: {}, signal });
    await flood.next();
    const input = Buffer.alloc(5_000_000);
    const quick = connection.call({ name: 'quick', parameters: {}, input, signal });
    expect((await quick.next()).value).toMatchObject({ header: { bytes: input.length } });
    expect(sent).toBeLessThan(8);
    await flood.return();
    connection.close();
    await served;
  });

  it('break the connection of a supervisor that sends more than there is room for', async () => {
    const [near, far] = duplexPair();
    const connection = new CallConnection(near);
    far.write(encodeFrame('hello', 0, { version: PROTOCOL_VERSION }));
    const { signal } = new AbortController();
    const call = connection.call({ name: 'flood', parameters: {}, signal });
    const first = call.next();
    await once(far, 'data');
    const item = encodeItem(1, { header: {}, bytes: Buffer.alloc(60_000) });
    for (let count = 0; count < 20; count += 1) far.write(item);
    await first;
    while (connection.isOpen) await new Promise((resolve) => setImmediate(resolve));
    await expect(
      (async () => {
        for await (const _item of call);
      })(),
    ).rejects.toBeInstanceOf(ConnectionLost);
  });

  it('fail at once on a connection that was lost after the greeting', async () => {
    const [near, far] = duplexPair();
    const served = serveCalls(far, { async nothing() {} });
    const connection = new CallConnection(near);
    const { signal } = new AbortController();
    await connection.call({ name: 'nothing', parameters: {}, signal }).next();
    connection.close();
    await expect(
      connection.call({ name: 'nothing', parameters: {}, signal }).next(),
    ).rejects.toBeInstanceOf(ConnectionLost);
    await served;
  });
});

describe('frames', () => {
  it('that are too long, or of another protocol, are refused before they are buffered', () => {
    const long = Buffer.alloc(9);
    long.writeUInt32LE(MAX_PAYLOAD_BYTES + 1, 0);
    long.writeUInt8(2, 4);
    expect(() => new FrameDecoder().push(long)).toThrow(ProtocolError);
    expect(() => new FrameDecoder().push(Buffer.from('HTTP/1.1 400 Bad Request'))).toThrow(
      ProtocolError,
    );
    expect(new FrameDecoder().push(encodeFrame('beat', 0))).toHaveLength(1);
  });
});
