import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { EventStreamClient } from '../support/event-stream-client.js';
import { query, type Service } from '../support/service.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';

const STAGES = [
  'create_sprite started',
  'create_sprite done',
  'env_file started',
  'env_file done',
  'provision_setup started',
  'provision_setup done',
  'runtime_start started',
];

let service: Service;
let sessions: SessionsOf;
beforeAll(async () => {
  service = await startSessionService({ HEARTBEAT_SECONDS: '0.3' });
  sessions = new SessionsOf(service, service);
});
afterAll(async () => {
  await leaveNothing(service, [sessions]);
  await service.stop();
});

const idOf = (frame: string) => Number(/^id: (\d+)\n/.exec(frame)?.[1] ?? NaN);
const urlOf = (id: string) => `${service.url}/sessions/${id}/stream`;

/** Each line is longer than an event may be, so there are at least two events for each, however late they are read. */
const LINE_ZEROS = 70_000;
const printLines = (letter: string) =>
  `for i in 1 2 3; do printf '%s%0${LINE_ZEROS}d\\n' ${letter}$i 0; done`;
const printed = (letter: string) =>
  [1, 2, 3].map((i) => `${letter}${i}${'0'.repeat(LINE_ZEROS)}\n`).join('');

async function twoTurns(): Promise<string> {
  const id = await sessions.create(`${printLines('a')}; echo e >&2`);
  await sessions.stream(id).end();
  await sessions.prompt(id, printLines('b'));
  await sessions.stream(id).end();
  return id;
}

describe('replay and resume', () => {
  let id: string;
  let full: EventStreamClient;
  beforeAll(async () => {
    id = await twoTurns();
    full = await sessions.stream(id).end();
  });
  const after = (cursor: number) => {
    const index = full.frames.findIndex((frame) => idOf(frame) === cursor);
    return [full.frames[0], ...full.frames.slice(index + 1)];
  };

  it('has the headers, to the letter', () => {
    expect(full.status).toBe(200);
    expect(full.headers['content-type']).toBe('text/event-stream');
    expect(full.headers['cache-control']).toBe('no-cache');
    expect(full.headers['x-accel-buffering']).toBe('no');
  });

  it('replays two turns with one terminal event', () => {
    expect(full.events[0]).toEqual({ type: 'start', provider: 'shell', session_id: id });
    expect(full.stages()).toEqual([...STAGES, 'runtime_start started']);
    expect(full.events.filter(({ type }) => type === 'turn_start').map(({ turn }) => turn)).toEqual(
      [1, 2],
    );
    expect(full.output('stdout')).toBe(printed('a') + printed('b'));
    expect(full.output('stderr')).toBe('e\n');
    expect(full.events.filter(({ type }) => type === 'exit')).toEqual([full.last]);
    expect(full.last).toMatchObject({ code: 0 });
  });

  it('goes on after every id, by header and by query', async () => {
    const ids = [...new Set(full.frames.map(idOf).filter((n) => !Number.isNaN(n)))];
    expect(ids.length).toBeGreaterThan(12);
    for (const cursor of ids) {
      const [byHeader, bySince] = await Promise.all([
        sessions.stream(id, { lastEventId: cursor }).end(),
        sessions.stream(id, { since: cursor }).end(),
      ]);
      expect(byHeader.frames).toEqual(after(cursor));
      expect(bySince.frames).toEqual(byHeader.frames);
    }
  });

  it('lets the header win', async () => {
    const [first = 0, second = 0] = full.frames.map(idOf).filter((n) => !Number.isNaN(n));
    expect((await sessions.stream(id, { lastEventId: second, since: first }).end()).frames).toEqual(
      after(second),
    );
    expect((await sessions.stream(id, { lastEventId: first, since: 'x' }).end()).frames).toEqual(
      after(first),
    );
    expect((await sessions.stream(id, { lastEventId: 0, since: second }).end()).frames).toEqual(
      full.frames,
    );
  });

  it('replays all for 0, and ends at once for what is beyond the end', async () => {
    expect((await sessions.stream(id, { since: 0 }).end()).frames).toEqual(full.frames);
    expect((await sessions.stream(id, { since: '000' }).end()).frames).toEqual(full.frames);
    for (const since of [full.last.id + 1000, '9'.repeat(15), '9'.repeat(40)]) {
      expect((await sessions.stream(id, { since }).end()).frames).toEqual([
        full.frames[0],
        full.frames.at(-1),
      ]);
    }
  });

  it('refuses any other cursor', async () => {
    for (const bad of ['-1', '1.5', 'abc', '0x10', '1e3', ' ', '+1', '١']) {
      const answer = await sessions.http.get(
        `/sessions/${id}/stream?since=${encodeURIComponent(bad)}`,
      );
      expect([bad, answer.status, typeof answer.body.detail]).toEqual([bad, 400, 'string']);
    }
    expect((await sessions.http.get(`/sessions/${id}/stream?since=`)).status).toBe(400);
    expect((await sessions.http.get(`/sessions/${id}/stream?since=1&since=2`)).status).toBe(400);
    for (const bad of ['-1', '1.5', 'abc', '1, 2']) {
      const answer = await sessions.http.get(`/sessions/${id}/stream`, {
        headers: { 'last-event-id': bad },
      });
      expect([bad, answer.status, typeof answer.body.detail]).toEqual([bad, 400, 'string']);
    }
  });

  it('is there for its owner only', async () => {
    const stranger = await service.createUser();
    const look = (token?: string) => new EventStreamClient(urlOf(id), { token }).end();
    expect((await look()).status).toBe(401);
    expect((await look('nonsense')).status).toBe(401);
    const other = await look(stranger.token);
    expect([other.status, JSON.parse(other.refusal)]).toEqual([
      404,
      { detail: 'Session not found' },
    ]);
    expect((await sessions.stream('no-uuid').end()).status).toBe(404);
    expect((await sessions.http.post(`/sessions/${id}/stream`)).status).toBe(405);
  });

  it('serves HTTP/1.0 and clients that close', async () => {
    for (const head of [
      'HTTP/1.0\r\n',
      'HTTP/1.0\r\nConnection: keep-alive\r\n',
      'HTTP/1.1\r\nHost: x\r\nConnection: close\r\n',
    ]) {
      const text = await raw(
        `GET /sessions/${id}/stream ${head}Authorization: Bearer ${service.token}\r\n\r\n`,
      );
      expect(text).toMatch(/^HTTP\/1\.1 200 /);
      if (head.startsWith('HTTP/1.0')) {
        expect(text).not.toMatch(/transfer-encoding/i);
        expect(text.slice(text.indexOf('\r\n\r\n') + 4)).toBe(`${full.frames.join('\n\n')}\n\n`);
      }
    }
  });

  it('goes on from the nearest surviving event when logs were purged', async () => {
    const other = await twoTurns();
    const whole = await sessions.stream(other).end();
    const ids = whole.events
      .filter(({ type }) => type === 'stage' || type === 'output')
      .map((event) => event.id);
    const [first = 0] = ids;
    // A row may hold several events, under the id of the last. Rows are purged, not events.
    const rows = await query<{ id: number }>(
      service.databaseUrl,
      'SELECT id::int AS id FROM event_log WHERE session_id = $1 ORDER BY id',
      [other],
    );
    const middle = rows[Math.ceil(rows.length / 2) - 1]?.id ?? 0;
    const gone = async (statement: string) =>
      query(service.databaseUrl, statement, [other, middle]);
    await pastRetention(service.databaseUrl);
    await gone(
      `UPDATE event_log SET created_at = created_at - interval '31 days' WHERE session_id = $1 AND id <= $2`,
    );
    const rest = ids.filter((n) => n > middle);
    expect(rest.length).toBeGreaterThan(0);
    expect(rest.length).toBeLessThan(ids.length);
    for (const cursor of [0, first, middle - 1, middle]) {
      const resumed = await sessions.stream(other, { since: cursor }).end();
      expect(
        resumed.events
          .filter(({ type }) => type === 'stage' || type === 'output')
          .map((event) => event.id),
      ).toEqual(rest);
      expect(resumed.last).toEqual(whole.last);
    }
    await gone(`DELETE FROM event_log WHERE session_id = $1 AND id > $2`);
    const empty = await sessions.stream(other, { since: first }).end();
    expect(empty.events.map(({ type }) => type)).toEqual(['start', 'exit']);
    // The session's last id, although no row of it is left.
    for (const since of [0, first, 999_999]) {
      expect((await sessions.stream(other, { since }).end()).last).toEqual(whole.last);
    }
  });
});

it('HEAD is answered at once with the headers of a stream, and leaves none behind', async () => {
  const id = await sessions.create('sleep 30');
  const answer = await sessions.http.send('HEAD', `/sessions/${id}/stream`);
  expect([answer.status, answer.text]).toEqual([200, '']);
  expect(answer.headers).toMatchObject({
    'content-type': 'text/event-stream',
    'cache-control': 'no-cache',
    'x-accel-buffering': 'no',
  });
  expect((await sessions.http.send('HEAD', `/sessions/${id}/stream?since=x`)).status).toBe(400);
  await sessions.http.post(`/sessions/${id}/terminate`);
});

describe('live', () => {
  it('shows lines while the turn runs on', async () => {
    const id = await sessions.create('echo early; sleep 86400');
    const stream = await sessions.stream(id).until((client) => client.output() === 'early\n');
    expect((await sessions.get(id)).status).toBe('running');
    await sessions.http.post(`/sessions/${id}/terminate`);
    await stream.end();
    expect(stream.last).toMatchObject({ type: 'terminated' });
  });

  it('shows the same as later, to the end', async () => {
    const id = await sessions.create('for i in $(seq 5); do echo $i; sleep 0.2; done; exit 7');
    const stream = await sessions.stream(id).end();
    expect(stream.output()).toBe('1\n2\n3\n4\n5\n');
    expect(stream.stages()).toEqual(STAGES);
    expect(stream.last).toMatchObject({ type: 'exit', code: 7 });
    expect((await sessions.stream(id).end()).frames).toEqual(stream.frames);
  });

  it('beats while there is no output', async () => {
    const id = await sessions.create('echo a; sleep 86400');
    const stream = sessions.stream(id);
    await stream.until((client) => client.output() === 'a\n');
    const before = stream.heartbeats;
    await stream.until(({ heartbeats }) => heartbeats >= before + 2);
    await sessions.http.post(`/sessions/${id}/terminate`);
    await stream.end();
  });

  it('is stale after silence, and whoever reconnects waits on', async () => {
    const impatient = await startSessionService({ STALE_AFTER_SECONDS: '1.5' });
    const own = new SessionsOf(impatient, impatient);
    try {
      // Making a sandbox may take longer than that; an existing one starts faster.
      const id = await own.create('true');
      await own.reach(id, 'completed');
      const before = await own.stream(id).end();
      await own.prompt(id, 'echo a; sleep 5; echo b');
      const first = await own.stream(id, { lastEventId: before.last.id }).end();
      expect(first.last).toMatchObject({ type: 'stale', message: expect.any(String) });
      expect((await own.get(id)).status).toBe('running');
      const second = await own.stream(id, { lastEventId: first.last.id }).end();
      expect(second.events.map(({ type }) => type)).toEqual(['start', 'stale']);
      expect(second.last.id).toBe(first.last.id);
      let output = '';
      let cursor = first.last.id;
      for (let round = 0; round < 10; round += 1) {
        const next = await own.stream(id, { lastEventId: cursor }).end();
        output += next.output();
        cursor = next.last.id;
        if (next.last.type !== 'stale') {
          expect(next.last).toMatchObject({ type: 'exit', code: 0 });
          break;
        }
      }
      expect(output).toBe('b\n');
      expect((await own.stream(id).end()).output()).toBe('a\nb\n');
    } finally {
      await leaveNothing(impatient, [own]);
      await impatient.stop();
    }
  });

  it('gives 200 readers the same bytes', async () => {
    const id = await sessions.create(
      'sleep 0.7; for i in $(seq 300); do echo line $i; done; sleep 0.3; echo end',
    );
    const readers = Array.from({ length: 200 }, () => sessions.stream(id));
    await Promise.all(readers.map((reader) => reader.end()));
    const late = await sessions.stream(id).end();
    expect(late.output()).toContain('line 300\nend\n');
    for (const reader of readers) expect(reader.frames).toEqual(late.frames);
  });

  it('ends the streams of a session that is deleted, and of its own turn when a prompt comes fast', async () => {
    const id = await sessions.create('echo one');
    const stream = sessions.stream(id);
    await sessions.reach(id, 'completed');
    await sessions.prompt(id, 'sleep 0.3; echo two');
    await stream.end();
    expect(stream.output()).toBe('one\n');
    expect((await sessions.stream(id).end()).output()).toBe('one\ntwo\n');
  });

  it('holds nothing for clients that went away', async () => {
    const id = await sessions.create(
      'while sleep 0.02; do head -c 3000 /dev/zero | tr "\\0" x; done',
    );
    await sessions
      .stream(id)
      .until((client) => client.events.some(({ type }) => type === 'output'))
      .then((s) => s.abort());
    const clients = Array.from({ length: 50 }, () => sessions.stream(id));
    await Promise.all(clients.map((client) => client.until(({ received }) => received > 20_000)));
    // Other connections of the service (to the database, from earlier tests) come and go meanwhile.
    const during = sockets();
    expect(during).toBeGreaterThanOrEqual(50);
    await Promise.all(clients.map((client) => client.abort()));
    await eventually(() => sockets() <= during - 45, 'the connections to be closed');
    await sessions.http.post(`/sessions/${id}/terminate`);
  });

  it('holds no memory for clients that do not read, who get everything later', async () => {
    const lines = 600_000;
    const id = await sessions.create(`seq -f "%.0f ${'x'.repeat(90)}" ${lines}`);
    const clients = Array.from({ length: 8 }, () => sessions.stream(id));
    await Promise.all(clients.map((client) => client.until(({ status }) => status === 200)));
    const before = residentMegabytes();
    for (const client of clients) client.pause();
    let peak = 0;
    await eventually(async () => {
      peak = Math.max(peak, residentMegabytes());
      return (await sessions.get(id)).status === 'completed';
    }, 'the end of the turn');
    // Eight clients times 58 MB, if it were kept for them.
    expect(peak - before).toBeLessThan(250);
    const [reader, ...others] = clients;
    await Promise.all(others.map((client) => client.abort()));
    reader?.resume();
    await reader?.end();
    const output = reader?.output() ?? '';
    expect(output.split('\n').length).toBe(lines + 1);
    expect(
      output
        .split('\n')
        .every((line, index) => index === lines || line.startsWith(`${index + 1} x`)),
    ).toBe(true);
  });
});

function raw(text: string): Promise<string> {
  const { hostname, port } = new URL(service.url);
  return new Promise((resolve, reject) => {
    let answer = '';
    const socket = connect(Number(port), hostname, () => socket.write(text));
    socket.setEncoding('utf8').on('data', (chunk: string) => {
      answer += chunk;
    });
    socket.on('end', () => resolve(answer)).on('error', reject);
  });
}

function sockets(): number {
  const folder = `/proc/${service.pid}/fd`;
  return readdirSync(folder).filter((fd) => {
    try {
      return readlinkSync(`${folder}/${fd}`).startsWith('socket:');
    } catch {
      return false;
    }
  }).length;
}

function residentMegabytes(): number {
  const [, kilobytes] =
    /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${service.pid}/status`, 'utf8')) ?? [];
  return Number(kilobytes) / 1024;
}

/** Makes room for rows that are older than the retention. */
async function pastRetention(databaseUrl: string): Promise<void> {
  const end = new Date(Date.now() - 29 * 86_400_000).toISOString().slice(0, 10);
  await query(
    databaseUrl,
    `CREATE TABLE event_log_old PARTITION OF event_log FOR VALUES FROM ('2000-01-01') TO ('${end}')`,
  );
}
