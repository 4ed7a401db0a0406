import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { fileServersOf } from '../support/file-servers.js';
import { describeWith } from '../support/requirements.js';
import type { Service } from '../support/service.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';

const SIZE = 60_000_000;

let service: Service;
let sessions: SessionsOf;
let id: string;

const open = (method: string, path: string, headers: Record<string, string> = {}) =>
  request(
    `${service.url}/sessions/${id}/files/content?${new URLSearchParams({ path }).toString()}`,
    {
      method,
      headers: { authorization: `Bearer ${service.token}`, ...headers },
    },
  );

const untilNobodyServes = () =>
  eventually(
    () => fileServersOf(id) === '',
    () => `no server to be left: ${fileServersOf(id)}`,
  );

describeWith(['sandboxes'], 'a transfer that makes no progress', () => {
  beforeAll(async () => {
    service = await startSessionService({ FILE_IDLE_SECONDS: '1' });
    sessions = new SessionsOf(service, service);
    id = await sessions.create(`printf before >half; head -c ${SIZE} /dev/zero >large`);
    await sessions.stream(id).end();
  }, 120_000);
  afterAll(async () => {
    await leaveNothing(service, [sessions]);
    await service.stop();
  });

  it('is ended with 408 if it is an upload, of which nothing is left', async () => {
    const upload = open('PUT', 'half', { 'content-length': String(SIZE) });
    upload.write(Buffer.alloc(2_000_000));
    const [answer] = (await once(upload, 'response')) as [IncomingMessage];
    const parts: Buffer[] = [];
    for await (const part of answer) parts.push(part as Buffer);
    upload.on('error', () => undefined).destroy();
    expect([answer.statusCode, Buffer.concat(parts).toString()]).toEqual([
      408,
      '{"detail":"The upload has stalled"}',
    ]);
    expect(answer.headers.connection).toBe('close');
    await untilNobodyServes();
    await sessions.prompt(id, 'cat half; ls -A; find ~ /workspace -name ".writing*"');
    expect((await sessions.stream(id).end()).output('stdout')).toMatch(/beforehalf\nlarge\n$/);
  }, 60_000);

  it('is ended if it is a download, whose client sees that bytes are missing', async () => {
    const download = open('GET', 'large').on('error', () => undefined);
    download.end();
    const [answer] = (await once(download, 'response')) as [IncomingMessage];
    answer.pause();
    expect(answer.statusCode).toBe(200);
    expect(fileServersOf(id)).not.toBe('');
    await untilNobodyServes();
    let bytes = 0;
    await expect(async () => {
      for await (const part of answer) bytes += (part as Buffer).length;
    }).rejects.toThrow('aborted');
    expect(bytes).toBeLessThan(SIZE);
  }, 60_000);
});
