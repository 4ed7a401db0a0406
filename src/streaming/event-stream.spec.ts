import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { LoopTurns } from '../common/loop-turns.js';
import type { Block } from '../event-log/frames.js';
import type { FeedHub, SessionFeed } from '../event-log/session-feed.js';
import type { StreamStates } from '../sessions/stream-states.repository.js';
import { EventStream, type StreamContext } from './event-stream.js';
import { StreamStats } from './stream-client.js';

const PAGE = `id: 1\ndata: ${'x'.repeat(256 * 1024)}\n\n`;
const STATE = {
  provider: 'shell',
  announcedTurn: 1,
  state: {
    sessionStatus: 'running',
    status: 'running',
    currentTurn: 1,
    staleCount: 0,
    lastId: 1e9,
    progress: null,
  },
};

const STALL_MS = 400;
/** More pages than the system buffers for a client that reads nothing. */
const MANY = 100;

/** A feed that answers every read with `next`, and counts the pages. */
function feedOf(next: (page: number) => string | undefined) {
  const counted = { pages: 0 };
  const read = async (cursor: number): Promise<Block[]> => {
    const data = next(counted.pages);
    if (data === undefined) return [];
    counted.pages += 1;
    return [{ first: cursor + 1, last: cursor + 1, turn: 1, isOutput: true, data }];
  };
  const feed = { sessionId: 's', read, expect: () => undefined } as unknown as SessionFeed;
  const hub = { join: () => feed, leave: () => undefined } as unknown as FeedHub;
  return { counted, hub };
}

describe('EventStream', () => {
  let server: Server;
  let client: Socket;
  beforeEach(async () => {
    server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
  });
  afterEach(async () => {
    client.destroy();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  /** Requests a stream, and reads nothing. */
  async function open(hub: FeedHub, stallMs = STALL_MS) {
    const closed = Promise.withResolvers<void>();
    const context: StreamContext = {
      hub,
      states: { connect: async () => STATE } as unknown as StreamStates,
      stats: new StreamStats(),
      turns: new LoopTurns(undefined, queueMicrotask),
      staleAfterSeconds: 600,
      stallMs,
      closed: () => closed.resolve(),
    };
    client = connect((server.address() as AddressInfo).port, '127.0.0.1');
    client.on('error', () => undefined);
    client.pause();
    client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    const [, response] = (await once(server, 'request')) as [unknown, ServerResponse];
    const stream = await EventStream.open(context, { userId: 'u', tokenId: 't' }, 's', 0);
    response.writeHead(200);
    const { socket } = response;
    if (!stream || !socket) throw new Error('not opened');
    return { stream, response, socket, closed: closed.promise };
  }

  test('reads no further for a client that takes nothing, and then disconnects it', async () => {
    const { counted, hub } = feedOf(() => PAGE);
    const { stream, response, socket, closed } = await open(hub);
    stream.begin(response);
    await closed;
    // What was read and not sent would be held for the client on top of what waits in its response.
    expect(counted.pages).toBeGreaterThan(0);
    expect(counted.pages).toBe(Math.floor(socket.bytesWritten / PAGE.length));
  });

  test('lets a client wait for as long as there is nothing, once it has taken all', async () => {
    const { counted, hub } = feedOf((page) => (page < MANY ? PAGE : undefined));
    // It reads all the time, so only a machine that stops for a minute could exceed this.
    const stallMs = 60_000;
    const { stream, response, socket } = await open(hub, stallMs);
    stream.begin(response);
    const limits = new Set<number | undefined>();
    while (
      counted.pages < MANY ||
      response.writableLength > 0 ||
      stream.pausedSince !== undefined
    ) {
      limits.add(socket.timeout);
      client.read();
      await new Promise(setImmediate);
    }
    expect(limits).toContain(stallMs);
    expect(socket.timeout).toBe(0);
  });

  test('disconnects a client that does not take the end', async () => {
    let stream: EventStream | undefined;
    // It ends between a page and the wait for the client to take it.
    const { hub } = feedOf(() => {
      setImmediate(() => stream?.endNow());
      return PAGE.repeat(MANY);
    });
    const opened = await open(hub);
    ({ stream } = opened);
    stream.begin(opened.response);
    await opened.closed;
    expect(opened.response.writableFinished).toBe(false);
  });

  test('disconnects a client that reads nothing while its stream ends', async () => {
    const { hub } = feedOf(() => PAGE);
    const { stream, response, closed } = await open(hub);
    stream.begin(response);
    while (stream.pausedSince === undefined) await new Promise(setImmediate);
    stream.endNow();
    await closed;
    expect(response.writableFinished).toBe(false);
    expect(stream.pausedSince).toBeUndefined();
  });

  test('sends large pages in turn with other users, and small ones at once', async () => {
    const small = { first: 1, last: 1, turn: 1, isOutput: true, data: 'id: 1\ndata: {}\n\n' };
    const pages: Block[][] = [[small], [{ ...small, first: 2, last: 2, data: PAGE }], []];
    const feed = { sessionId: 's', read: async () => pages.shift() ?? [], expect: () => undefined };
    const sent: string[] = [];
    const out = new PassThrough();
    out.on('data', (data: Buffer) => sent.push(`${data.length}`));
    const taken = Promise.withResolvers<[userId: string, bytes: number, sentBefore: string[]]>();
    const turns = {
      run: async (userId: string, bytes: number, work: () => void) => {
        // What was written is read in the next round of the event loop.
        await new Promise(setImmediate);
        taken.resolve([userId, bytes, [...sent]]);
        work();
      },
    };
    const context: StreamContext = {
      hub: { join: () => feed, leave: () => undefined } as unknown as FeedHub,
      states: { connect: async () => STATE } as unknown as StreamStates,
      stats: new StreamStats(),
      turns: turns as unknown as LoopTurns,
      staleAfterSeconds: 600,
      stallMs: 0,
      closed: () => undefined,
    };
    const stream = await EventStream.open(context, { userId: 'u', tokenId: 't' }, 's', 0);
    stream?.begin(out);
    const [userId, bytes, sentBefore] = await taken.promise;
    expect([userId, bytes]).toEqual(['u', PAGE.length]);
    expect(sentBefore).toContain(`${small.data.length}`);
    out.destroy();
  });
});
