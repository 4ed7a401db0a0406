import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { reset } from './connections.js';

describe('reset', () => {
  const server = createServer({ allowHalfOpen: true });
  let client: Socket;
  let peer: Socket;
  /** What the peer reports, in order. */
  let seen: string[];

  beforeEach(async () => {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    client = connect({ port: (server.address() as AddressInfo).port, allowHalfOpen: true });
    [peer] = (await once(server, 'connection')) as [Socket];
    if (client.connecting) await once(client, 'connect');
    seen = [];
    peer.on('end', () => seen.push('end'));
    peer.on('error', (error: NodeJS.ErrnoException) => seen.push(error.code ?? error.message));
    peer.resume();
  });

  afterEach(async () => {
    client.destroy();
    peer.destroy();
    server.close();
    await once(server, 'close');
  });

  it('closes a connection so that its peer sees a reset', async () => {
    const closed = Promise.all([once(client, 'close'), waitForClose(peer)]);
    reset(client);
    await closed;
    expect(seen).toEqual(['ECONNRESET']);
  });

  // Each leaves a descriptor behind if the socket is reset while its end is on the way.
  it.each([
    ['at once', (then: () => void) => then()],
    ['in the next tick', (then: () => void) => process.nextTick(then)],
    ['in the next turn of the loop', (then: () => void) => setImmediate(then)],
  ])('closes a connection that has just ended, %s', async (_, later) => {
    const errors: Error[] = [];
    client.on('error', (error) => errors.push(error));
    const closed = once(client, 'close');
    client.end();
    later(() => reset(client));
    await closed;
    expect(errors).toEqual([]);
  });

  it('does not wait for a peer that does not read', async () => {
    peer.pause();
    const block = Buffer.alloc(1024 * 1024);
    while (client.write(block) || client.writableLength < 64 * block.length);
    client.end();
    const closed = once(client, 'close');
    reset(client);
    await closed;
  });
});

/** A socket that fails is closed, too; `once` would reject then. */
function waitForClose(socket: Socket): Promise<void> {
  return new Promise((closed) => socket.once('close', () => closed()));
}
