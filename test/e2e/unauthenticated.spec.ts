import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { generateAccessToken } from '../../src/auth/access-token.js';
import { HttpClient } from '../support/http-client.js';
import { type LoggedService, startLoggedService } from '../support/statement-log.js';
import { PATIENCE_MS } from '../support/patience.js';
import { eventually } from '../support/sessions.js';

const MIB = 2 ** 20;
/** JSON that takes long to parse. */
const LARGE = Buffer.from(
  `{${Array.from({ length: 150_000 }, (_none, index) => `"key${index}":1`).join()}}`,
);

let service: LoggedService;
beforeAll(async () => {
  service = await startLoggedService({ MAX_CONNECTIONS: '60' });
});
afterAll(() => service.stop());

/** Sends the head of a request and so much of its body, and reads until the connection ends. */
async function exchange(head: string, body: Buffer) {
  const { hostname, port } = new URL(service.url);
  return new Promise<{ text: string; ended: boolean; sent: number; hangs: boolean }>((resolve) => {
    const socket = connect({ port: Number(port), host: hostname, allowHalfOpen: true });
    let text = '';
    let ended = false;
    let hangs = false;
    const timer = setTimeout(() => {
      hangs = true;
      socket.destroy();
    }, PATIENCE_MS);
    socket.on('error', () => undefined);
    socket.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
    socket.once('end', () => {
      ended = true;
      socket.end();
    });
    socket.once('close', () => {
      clearTimeout(timer);
      resolve({ text, ended, sent: socket.bytesWritten, hangs });
    });
    socket.write(head);
    socket.write(body);
  });
}

const headOf = (length: number) =>
  `POST /agents HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`;

describe('a request without a valid token', () => {
  it('is answered before its body has arrived, and its connection ends', async () => {
    const { text, ended } = await exchange(headOf(4 * MIB), Buffer.from('{"na'));
    expect(text).toMatch(/^HTTP\/1\.1 401 /);
    expect(text).toMatch(/\r\nconnection: close\r\n/i);
    expect(text).toContain('{"detail":"Missing or invalid access token"}');
    expect(ended).toBe(true);
  });

  it('shows its answer to clients that send all of the body first', async () => {
    const nobody = new HttpClient(service.url);
    for (const chunked of [false, true]) {
      const answer = await nobody.post('/agents', undefined, {
        raw: Buffer.alloc(3 * MIB, ' '),
        chunked,
      });
      expect(answer.status).toBe(401);
    }
    const tooLarge = await service.http.post('/agents', undefined, { raw: Buffer.alloc(7 * MIB) });
    expect(tooLarge.status).toBe(413);
    const unmatched = await nobody.post('/nowhere', undefined, { raw: Buffer.alloc(3 * MIB) });
    expect(unmatched.status).toBe(404);
  });

  it('is not listened to for ever', async () => {
    const { sent, hangs } = await exchange(headOf(10_000 * MIB), Buffer.alloc(24 * MIB));
    expect(hangs).toBe(false);
    expect(sent).toBeLessThan(10_000 * MIB);
  });

  it('does not hold up others, however much is sent', async () => {
    const nobody = new HttpClient(service.url);
    const flooding = new AbortController();
    let refused = 0;
    const flood = async (): Promise<void> => {
      while (!flooding.signal.aborted) {
        const answer = await nobody
          .post('/agents', undefined, { raw: LARGE })
          .catch(() => undefined);
        if (answer?.status === 401) refused += 1;
      }
    };
    const floods = Array.from({ length: 8 }, () => flood());
    try {
      for (let index = 0; index < 40; index += 1) {
        expect((await service.http.get('/healthz')).status).toBe(200);
      }
      await eventually(() => refused > 20, 'bodies to be refused');
    } finally {
      flooding.abort();
      await Promise.all(floods);
    }
  });

  it('costs the database few statements, however many tokens are made up', async () => {
    const before = service.statements.length;
    const requests = Array.from({ length: 300 }, () => generateAccessToken());
    for (let start = 0; start < requests.length; start += 50) {
      const answers = await Promise.all(
        requests
          .slice(start, start + 50)
          .map((token) => new HttpClient(service.url, token).get('/agents')),
      );
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([401]));
    }
    const lookups = service.statements
      .slice(before)
      .filter((text) => text.includes('access_tokens'));
    expect(lookups.length).toBeLessThan(150);
    const again = service.statements.length;
    const same = new HttpClient(service.url, requests[0]);
    for (let index = 0; index < 20; index += 1) await same.get('/agents');
    const repeated = service.statements
      .slice(again)
      .filter((text) => text.includes('access_tokens'));
    expect(repeated.length).toBeLessThanOrEqual(3);
  });
});

describe('connections', () => {
  it('beyond MAX_CONNECTIONS are closed', async () => {
    const { hostname, port } = new URL(service.url);
    const sockets = Array.from({ length: 70 }, () => connect(Number(port), hostname));
    try {
      let closed = 0;
      for (const socket of sockets) {
        socket.on('error', () => undefined);
        socket.once('close', () => {
          closed += 1;
        });
      }
      await eventually(() => closed >= 10, 'connections to be closed');
      expect(closed).toBeGreaterThanOrEqual(10);
      expect(closed).toBeLessThan(40);
    } finally {
      for (const socket of sockets) socket.destroy();
    }
    await delay(100);
    expect((await service.http.get('/healthz')).status).toBe(200);
  });

  it('with too many headers are refused', async () => {
    const headers = Object.fromEntries(
      Array.from({ length: 120 }, (_none, index) => [`x-${index}`, 'a']),
    );
    const answer = await service.http.get('/agents', { headers });
    expect(answer.status).toBe(431);
    expect(answer.body.detail).toBe('The request has more than 100 headers');
  });

  it('that never send a whole head are closed', async () => {
    const { text } = await exchange('GET /agents HTTP/1.1\r\nHost: x\r\n', Buffer.alloc(0));
    expect(text).toMatch(/^HTTP\/1\.1 408 /);
  });

  it('take no large bodies where a route takes none', async () => {
    const path = '/agents/00000000-0000-4000-8000-000000000000/archive';
    const large = await service.http.post(path, undefined, { raw: Buffer.alloc(100_000) });
    expect(large.status).toBe(413);
    expect((await service.http.post(path, {})).status).toBe(404);
  });
});
