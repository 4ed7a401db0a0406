import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { decode, encode } from 'dns-packet';
import { gatewayAt } from '../../../src/gateway/client.js';
import { createGateway } from '../../../src/gateway/server.js';
import { dialFromHost, hostEgress } from '../../../src/gateway/egress/dialing.js';
import { hostResolver, isMissing, type Resolve } from '../../../src/gateway/egress/resolving.js';
import { startTcp, type TestServer } from './servers.js';

const PUBLIC = '203.0.113.9';

describe('resolving on the host', () => {
  let dns: Socket;
  let folder: string;
  let resolve: Resolve;
  /** Names that the server was asked for. */
  let asked: string[];

  beforeEach(async () => {
    asked = [];
    dns = createSocket('udp4');
    dns.on('message', (query, from) => {
      const packet = decode(query);
      const question = packet.questions?.[0];
      const name = question?.name ?? '';
      asked.push(name);
      // A server that is dead.
      if (name.startsWith('dead')) return;
      const missing = name.startsWith('missing');
      const reply = encode({
        type: 'response',
        id: packet.id,
        flags: 0x180 | (missing ? 3 : 0),
        questions: packet.questions,
        answers:
          missing || question?.type !== 'A' ? [] : [{ type: 'A', name, ttl: 1, data: PUBLIC }],
      });
      dns.send(reply, from.port, from.address);
    });
    dns.bind(0, '127.0.0.1');
    await once(dns, 'listening');
    folder = await mkdtemp(join(tmpdir(), 'resolving-'));
    await writeFile(
      join(folder, 'hosts'),
      '198.51.100.7 Own.example other # comment\nnonsense x\n',
    );
    resolve = hostResolver({
      servers: [`127.0.0.1:${dns.address().port}`],
      hostsFile: join(folder, 'hosts'),
    });
  });

  afterEach(async () => {
    dns.close();
    await rm(folder, { recursive: true });
  });

  const ask = (host: string, signal = AbortSignal.timeout(60_000)): Promise<readonly string[]> =>
    resolve(host, { isGateway: false, signal });

  it('asks the name servers, and takes the hosts file first', async () => {
    expect(await ask('a.example')).toEqual([PUBLIC]);
    expect(await ask('own.example')).toEqual(['198.51.100.7']);
    expect(asked).not.toContain('own.example');
    const missing = await ask('missing.example').catch((error: unknown) => error);
    expect(isMissing(missing)).toBe(true);
  });

  it('resolves gateways as the host does', async () => {
    const signal = AbortSignal.timeout(60_000);
    expect(await resolve('localhost', { isGateway: true, signal })).toContain('127.0.0.1');
    expect(asked).toEqual([]);
  });

  it('gives up when it is told to', async () => {
    const giveUp = new AbortController();
    const waiting = ask('dead.example', giveUp.signal).catch((error: unknown) => error);
    while (asked.length === 0) await new Promise((done) => setTimeout(done, 10));
    giveUp.abort();
    expect(isMissing(await waiting)).toBe(false);
  });

  it('is not held up by names whose servers are dead', async () => {
    let ended = 0;
    const waiting = Array.from({ length: 200 }, (_, i) =>
      ask(`dead-${i}.example`)
        .then(
          () => 'found',
          () => 'failed',
        )
        .finally(() => (ended += 1)),
    );
    while (asked.length < 100) await new Promise((done) => setTimeout(done, 10));
    expect(await ask('a.example')).toEqual([PUBLIC]);
    // It did not stand behind them.
    expect(ended).toBeLessThan(100);
    expect(new Set(await Promise.all(waiting))).toEqual(new Set(['failed']));
  });

  describe('for all sandboxes of an engine', () => {
    let server: TestServer;
    let egress: Server;
    const path = (): string => join(folder, 'egress');

    beforeEach(async () => {
      server = await startTcp((socket) => socket.end('hello'));
      egress = createGateway({
        egress: hostEgress(resolve, (target) =>
          dialFromHost({ ...target, address: '127.0.0.1', port: server.port }),
        ),
      });
      egress.listen(path());
      await once(egress, 'listening');
    });

    afterEach(async () => {
      egress.close();
      await server.close();
    });

    it('connects one while another asks for names whose servers are dead', async () => {
      const stop = new AbortController();
      const other = gatewayAt(path());
      let ended = 0;
      const waiting = Array.from({ length: 100 }, (_, i) =>
        other
          .connect({ host: `dead-${i}.example`, port: 443, isGateway: false }, stop.signal)
          .catch((error: unknown) => error)
          .finally(() => (ended += 1)),
      );
      while (asked.length < 100) await new Promise((done) => setTimeout(done, 10));
      const mine = gatewayAt(path());
      const socket = await mine.connect(
        { host: 'a.example', port: 443, isGateway: false },
        stop.signal,
      );
      expect(ended).toBeLessThan(100);
      expect(await mine.exists('a.example', stop.signal)).toBe(true);
      expect(await mine.exists('missing.example', stop.signal)).toBe(false);
      socket.destroy();
      stop.abort();
      await Promise.all(waiting);
    });
  });
});
