import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { Attack } from '../attack.js';
import { Answers, type Mallory } from '../mallory.js';

/** Connections that each begin with some bytes and may go on with more; resolves with how they fared. */
async function occupy(
  mallory: Mallory,
  options: { count: number; seconds: number; first: string; again?: string; read?: boolean },
): Promise<string> {
  const { count, seconds, first, again, read = true } = options;
  const { hostname, port } = new URL(mallory.url);
  const answers = new Answers();
  const sockets: Socket[] = [];
  const end = mallory.until(seconds);
  try {
    for (let index = 0; index < count && !mallory.signal.aborted; index += 1) {
      const socket = connect(Number(port), hostname);
      let ended = false;
      const settle = (how: string): void => {
        if (!ended) answers.add(how);
        ended = true;
      };
      socket.on('error', (error: NodeJS.ErrnoException) => settle(`cut (${error.code})`));
      socket.on('close', () => settle('closed'));
      if (read)
        socket.on('data', (data) =>
          settle(/^HTTP\/1.1 (\d+)/.exec(data.toString('latin1'))?.[1] ?? 'data'),
        );
      else socket.pause();
      socket.write(first);
      sockets.push(socket);
      if (index % 100 === 99) await delay(20);
    }
    while (Date.now() < end && !mallory.signal.aborted) {
      if (again !== undefined)
        for (const socket of sockets) if (socket.writable) socket.write(again);
      await delay(1_000);
    }
    const open = sockets.filter(({ destroyed, readyState }) => !destroyed && readyState === 'open');
    return `${open.length} of ${sockets.length} still open; ${answers.toString()}`;
  } finally {
    for (const socket of sockets) socket.destroy();
  }
}

const head = (mallory: Mallory, line: string, more = ''): string =>
  `${line} HTTP/1.1\r\nHost: service\r\nAuthorization: Bearer ${mallory.token}\r\n${more}`;

/** What happens to connections is for a limit to say; that others have theirs is what counts. */
const ANY = /still open/;

export const CONNECTION_ATTACKS: readonly Attack[] = [
  {
    name: 'idle-connections',
    what: '2,000 connections that say nothing',
    expected: ANY,
    run: (mallory) => occupy(mallory, { count: 2_000, seconds: 12, first: '' }),
  },
  {
    name: 'slow-headers',
    what: '600 connections that send a header byte by byte',
    expected: ANY,
    run: (mallory) =>
      occupy(mallory, {
        count: 600,
        seconds: 12,
        first: 'GET /sessions HTTP/1.1\r\nX-Slow: ',
        again: 'a',
      }),
  },
  {
    name: 'slow-bodies',
    what: '400 requests with a body of 4 MiB that comes byte by byte',
    expected: ANY,
    run: (mallory) =>
      occupy(mallory, {
        count: 400,
        seconds: 12,
        first: head(
          mallory,
          'POST /agents',
          'Content-Type: application/json\r\nContent-Length: 4000000\r\n\r\n{"name":"',
        ),
        again: 'a',
      }),
  },
  {
    name: 'many-headers',
    what: '200 requests with 15 KiB of headers in 2,000 lines',
    expected: /(431|200|400|429)/,
    run: (mallory) =>
      occupy(mallory, {
        count: 200,
        seconds: 3,
        first: `${head(mallory, 'GET /sessions', 'a:b\r\n'.repeat(2_000))}\r\n`,
      }),
  },
  {
    name: 'pipelined',
    what: '20 connections with 2,000 requests each, whose answers nobody reads',
    expected: ANY,
    run: (mallory) =>
      occupy(mallory, {
        count: 20,
        seconds: 10,
        first: `${head(mallory, 'GET /sessions')}\r\n`.repeat(2_000),
        read: false,
      }),
  },
  {
    name: 'unread-streams',
    what: '200 streams of a session with 12 MiB of output that nobody reads',
    expected: ANY,
    run: async (mallory) => {
      const prompt = `yes "$(printf '%01000d')" | head -c 12M; sleep 15`;
      const id = await mallory.start({ prompts: [prompt], seconds: 40 });
      try {
        const first = `${head(mallory, `GET /sessions/${id}/stream`)}\r\n`;
        return await occupy(mallory, { count: 200, seconds: 12, first, read: false });
      } finally {
        await mallory.remove(id);
      }
    },
  },
  {
    name: 'many-streams',
    what: '400 streams that are opened, replayed and left again and again',
    expected: ANY,
    run: async (mallory) => {
      const prompt = `yes "$(printf '%0500d')" | head -c 2M; sleep 30`;
      const id = await mallory.start({ prompts: [prompt], seconds: 60 });
      try {
        const first = `${head(mallory, `GET /sessions/${id}/stream`)}\r\n`;
        let ending = '';
        for (let round = 0; round < 4 && !mallory.signal.aborted; round += 1)
          ending = await occupy(mallory, { count: 100, seconds: 2, first });
        return ending;
      } finally {
        await mallory.remove(id);
      }
    },
  },
];
