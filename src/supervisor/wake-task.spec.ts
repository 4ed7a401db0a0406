import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { stayAwake } from './wake-task.js';

const PATH = '/v1/tasks/turn-1';
/** Only what hangs takes so long. */
const PATIENCE_MS = 60_000;

describe('the task that keeps a sprite awake', () => {
  let folder: string;
  let socket: string;
  let server: Server;
  /** The statuses of the next answers; then 200. */
  let statuses: number[];
  /** Every request: method, path and body. */
  let asked: string[];

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'wake-'));
    socket = join(folder, 'api.sock');
    statuses = [];
    asked = [];
    server = createServer((request, response) => {
      let body = '';
      request.setEncoding('utf8').on('data', (text: string) => (body += text));
      request.on('end', () => {
        asked.push(`${request.method} ${request.url} ${body}`.trim());
        response.writeHead(statuses.shift() ?? 200).end();
      });
    });
    await once(server.listen(socket), 'listening');
    jest.useFakeTimers({
      doNotFake: ['nextTick', 'setImmediate', 'queueMicrotask', 'performance'],
    });
  });

  afterEach(async () => {
    jest.useRealTimers();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await rm(folder, { recursive: true });
  });

  /** Until the answer to the latest request has set the next timer. */
  async function answered(requests: number): Promise<void> {
    const end = performance.now() + PATIENCE_MS;
    while (asked.length < requests || jest.getTimerCount() === 0) {
      if (performance.now() > end) throw new Error(`only ${asked.length} requests came`);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  const renewal = `PUT ${PATH} {"expire":"5m"}`;

  it('is renewed each minute, and removed at the end', async () => {
    const task = stayAwake({ socket, name: 'turn-1' });
    await answered(1);
    for (const minutes of [1, 2, 3]) {
      jest.advanceTimersByTime(59_999);
      expect(asked).toHaveLength(minutes);
      jest.advanceTimersByTime(1);
      await answered(minutes + 1);
    }
    await task.end();
    expect(asked).toEqual([renewal, renewal, renewal, renewal, `DELETE ${PATH}`]);
    expect(jest.getTimerCount()).toBe(0);
  });

  it('is asked for again after two seconds when the interface refuses it', async () => {
    statuses = [500];
    const task = stayAwake({ socket, name: 'turn-1' });
    await answered(1);
    jest.advanceTimersByTime(2_000);
    await answered(2);
    await task.end();
    expect(asked).toEqual([renewal, renewal, `DELETE ${PATH}`]);
  });

  it('is removed after it was asked for, also if the end comes first', async () => {
    await stayAwake({ socket, name: 'turn-1' }).end();
    expect(asked).toEqual([renewal, `DELETE ${PATH}`]);
    expect(jest.getTimerCount()).toBe(0);
  });
});
