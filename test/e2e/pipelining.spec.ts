import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { type Service, startService } from '../support/service.js';

let service: Service;

/** Sends requests without waiting, reads until the connection ends or all are answered. @returns the statuses */
async function pipeline(count: number): Promise<string[]> {
  const { hostname, port } = new URL(service.url);
  const socket = connect(Number(port), hostname);
  const head = `GET /sessions HTTP/1.1\r\nHost: service\r\nAuthorization: Bearer ${service.token}\r\n\r\n`;
  let text = '';
  const statuses = () => [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status ?? '');
  socket.setEncoding('latin1').on('data', (data) => {
    text += String(data);
    if (statuses().length === count) socket.end();
  });
  socket.on('error', () => undefined);
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.write(head.repeat(count));
  await closed;
  return statuses();
}

const answered = () => service.logs().split('"route":"/sessions"').length - 1;

describe('requests that do not wait for answers', () => {
  beforeAll(async () => {
    service = await startService({ env: { LOG_FORMAT: 'json' } });
  });
  afterAll(() => service.stop());

  it('are answered in order, if they are few', async () => {
    expect(await pipeline(10)).toEqual(Array.from({ length: 10 }, () => '200'));
  });

  it('cut their connection and are not done, if they are many', async () => {
    const before = answered();
    expect((await pipeline(2_000)).length).toBeLessThan(100);
    expect((await service.http.get('/sessions')).status).toBe(200);
    expect(answered() - before).toBeLessThan(100);
  });
});
