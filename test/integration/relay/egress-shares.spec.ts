import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import type { Server, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { gatewayAt } from '../../../src/gateway/client.js';
import { createGateway } from '../../../src/gateway/server.js';
import type { EgressLimits } from '../../../src/gateway/shares.js';
import { dialFromHost, hostEgress } from '../../../src/gateway/egress/dialing.js';
import { startTcp, type TestServer } from './servers.js';

const { signal } = new AbortController();
const DESTINATION = { host: 'a.example', port: 443, isGateway: false };
const ANSWER = 64 * 2 ** 20;
let folder: string;
let server: TestServer;
let egress: Server | undefined;
/** Called when a client is gone. */
let letGo: (() => void) | undefined;
const opened: Socket[] = [];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'shares-'));
  // Sends a large answer to each request.
  server = await startTcp((socket) =>
    socket.once('data', () => {
      socket.write(Buffer.alloc(ANSWER));
      socket.once('close', () => letGo?.());
    }),
  );
});

afterEach(async () => {
  for (const socket of opened.splice(0)) socket.destroy();
  egress?.close();
  await server.close();
  await rm(folder, { recursive: true });
});

/** Makes relays of an egress with these limits. */
async function relays(limits: Partial<EgressLimits>) {
  const path = join(folder, 'egress');
  egress = createGateway({
    egress: hostEgress(
      () => Promise.resolve(['1.1.1.1']),
      (target) => dialFromHost({ ...target, address: '127.0.0.1', port: server.port }),
    ),
    limits: { each: 100, all: 100, waitingBytes: 2 ** 40, ...limits },
  });
  egress.listen(path);
  await once(egress, 'listening');
  return [0, 1].map(() => {
    const relay = gatewayAt(path);
    return async () => {
      const socket = await relay.connect(DESTINATION, signal);
      socket.on('error', () => undefined);
      opened.push(socket);
      return socket;
    };
  }) as [() => Promise<Socket>, () => Promise<Socket>];
}

it('a relay gets no more connections than its limit', async () => {
  const [mallory, bob] = await relays({ each: 2 });
  await mallory();
  await mallory();
  await expect(mallory()).rejects.toThrow('too many connections');
  await bob();
});

it('if all relays have too many, the relay with the most loses one', async () => {
  const [mallory, bob] = await relays({ all: 3 });
  await mallory();
  await mallory();
  const newest = await mallory();
  const gone = once(newest, 'end');
  newest.resume();
  await bob();
  await gone;
  // Bob's share is no longer smaller than Mallory's.
  await expect(bob()).rejects.toThrow('too many connections');
  await expect(mallory()).rejects.toThrow('too many connections');
});

it('the relay with the most unread bytes loses its connections', async () => {
  const [mallory, bob] = await relays({ waitingBytes: 0 });
  const quiet = await bob();
  let lost = false;
  quiet.resume().once('close', () => (lost = true));
  const greedy = await mallory();
  const gone = new Promise<void>((resolve) => (letGo = resolve));
  greedy.pause().write('send');
  // Nobody reads until the egress has closed the connection, so the data ends after what had arrived.
  await gone;
  let read = 0;
  greedy.on('data', (data: Buffer) => (read += data.length)).resume();
  await once(greedy, 'end');
  expect(read).toBeLessThan(ANSWER);
  expect(lost).toBe(false);
});
