import { createHash } from 'node:crypto';
import { request } from 'node:http';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { fileServersOf } from '../support/file-servers.js';
import { describeWith } from '../support/requirements.js';
import type { Service } from '../support/service.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';

const SIZE = 60_000_000;
const KILLS = 5;

let first: Service;
let service: Service;
let sessions: SessionsOf;
let id: string;
let sum: string;

const address = (path: string) =>
  `${service.url}/sessions/${id}/files/content?${new URLSearchParams({ path }).toString()}`;
const authorization = () => ({ authorization: `Bearer ${service.token}` });

/** Kills the service, and starts it again with the same data at the same address. */
async function killAndRestart(): Promise<void> {
  const { databaseUrl, dataDir, url, token, http } = service;
  await service.kill9();
  const again = await startSessionService({ PORT: new URL(url).port }, { databaseUrl, dataDir });
  service = { ...again, token, http };
}

describeWith(['sandboxes'], 'a transfer that is interrupted by a kill of the service', () => {
  beforeAll(async () => {
    first = service = await startSessionService();
    sessions = new SessionsOf(service, service);
    id = await sessions.create(`head -c ${SIZE} /dev/urandom >large; sha256sum <large`);
    sum = (await sessions.stream(id).end()).output('stdout').slice(0, 64);
  });
  afterAll(async () => {
    await leaveNothing(service, [sessions]);
    await service.stop();
    if (first !== service) await first.stop();
  });

  it('continues a download where it was, with the same bytes', async () => {
    const parts: Buffer[] = [];
    let bytes = 0;
    let tag = '';
    for (let kills = 0; bytes < SIZE; kills += 1) {
      const range = bytes === 0 ? {} : { range: `bytes=${bytes}-`, 'if-range': tag };
      const response = await fetch(address('large'), {
        headers: { ...authorization(), ...range },
      });
      expect(response.status).toBe(bytes === 0 ? 200 : 206);
      tag = response.headers.get('etag') ?? '';
      const stop = bytes + SIZE / (KILLS + 2);
      let killed: Promise<void> | undefined;
      try {
        for await (const part of response.body ?? []) {
          parts.push(Buffer.from(part));
          bytes += part.length;
          if (kills < KILLS && bytes > stop) killed ??= killAndRestart();
        }
      } catch (error) {
        expect(killed).toBeDefined();
        expect(String(error)).toContain('terminated');
      }
      await killed;
    }
    expect(createHash('sha256').update(Buffer.concat(parts)).digest('hex')).toBe(sum);
  });

  it('has the same tag for the same content, wherever its file system is mounted', async () => {
    const head = (): Promise<Response> =>
      fetch(address('large'), { method: 'HEAD', headers: authorization() });
    const before = (await head()).headers.get('etag');
    expect(before).toMatch(/^".+"$/);
    // Each of them takes the device that the next access to the file would have had.
    const others = await Promise.all([1, 2].map(() => sessions.create('echo up; sleep 100')));
    for (const other of others)
      await sessions.stream(other).until((stream) => stream.output() === 'up\n');
    expect((await head()).headers.get('etag')).toBe(before);
    for (const other of others) await sessions.http.post(`/sessions/${other}/terminate`);
  });

  it('leaves nothing of an upload', async () => {
    const content = Buffer.alloc(1_000_000, 'x');
    for (let kills = 0; kills < 3; kills += 1) {
      await new Promise<void>((resolve, reject) => {
        const upload = request(address('uploaded'), {
          method: 'PUT',
          headers: { ...authorization(), 'content-length': String(SIZE) },
        });
        // The kill breaks the connection.
        upload.on('error', () => undefined);
        let sent = 0;
        const send = (): void => {
          sent += content.length;
          if (sent === 20_000_000) killAndRestart().then(resolve, reject);
          if (!upload.destroyed && sent < SIZE) upload.write(content, send);
        };
        send();
      });
      await eventually(
        () => fileServersOf(id) === '',
        () => `no server to be left: ${fileServersOf(id)}`,
      );
    }
    await sessions.prompt(id, 'ls -A; find ~ /workspace -name ".writing*"');
    expect((await sessions.stream(id).end()).output('stdout')).toMatch(/large\n$/);
    const again = await fetch(address('uploaded'), {
      method: 'PUT',
      headers: authorization(),
      body: 'whole',
    });
    expect(again.status).toBe(200);
  });
});
