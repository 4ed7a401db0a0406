// A web backend that lets users start sessions and watch them in their browsers. Browsers never get the access token.
//
//   BASE_URL=http://127.0.0.1:8080 ACCESS_TOKEN=ast_... AGENT_ID=... node server.ts
//
// Needs only Node 24. A real application would use its own sign-in instead of the cookie, and a database instead of the
// Map.
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { text } from 'node:stream/consumers';

const {
  BASE_URL = 'http://127.0.0.1:8080',
  ACCESS_TOKEN = '',
  AGENT_ID = '',
  PORT = '3000',
} = process.env;
const AUTHORIZATION = `Bearer ${ACCESS_TOKEN}`;
const MAX_BODY = 64 * 1024;
const EVENT_STREAM = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-cache',
  // Keeps a proxy in front of this from buffering events.
  'x-accel-buffering': 'no',
};
const PAGE_FILES: Record<string, [file: string, type: string]> = {
  '/': ['page.html', 'text/html; charset=utf-8'],
  '/page.js': ['page.js', 'text/javascript; charset=utf-8'],
};

/**
 * Maps each session to the visitor who started it. The token can read all sessions, so this backend must decide who may
 * watch which.
 */
const owners = new Map<string, string>();

/** Starts a session for the visitor. */
async function start(visitor: string, request: IncomingMessage, response: ServerResponse) {
  if (Number(request.headers['content-length'] ?? Infinity) > MAX_BODY) {
    return answer(response, 413, { error: 'Too much text' });
  }
  const { prompt } = JSON.parse(await text(request)) as { prompt?: unknown };
  const accepted = await fetch(`${BASE_URL}/sessions`, {
    method: 'POST',
    headers: { authorization: AUTHORIZATION, 'content-type': 'application/json' },
    body: JSON.stringify({ agent_id: AGENT_ID, prompt }),
  });
  if (accepted.status === 429) return answer(response, 429, { error: 'Busy; try again later' });
  if (accepted.status === 422) return answer(response, 422, { error: 'A prompt is needed' });
  if (accepted.status !== 202) throw new Error(`${accepted.status} ${await accepted.text()}`);
  const { id } = (await accepted.json()) as { id: string };
  owners.set(id, visitor);
  return answer(response, 201, { id, events: `/runs/${id}/events` });
}

/**
 * Forwards a session's stream byte by byte, including ids, heartbeats and the browser's Last-Event-ID, so that
 * EventSource resumes as if it were connected to the service.
 */
async function relay(id: string, request: IncomingMessage, response: ServerResponse) {
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  const lastEventId = request.headers['last-event-id'];
  const stream = await fetch(`${BASE_URL}/sessions/${id}/stream`, {
    headers: {
      authorization: AUTHORIZATION,
      ...(typeof lastEventId === 'string' && { 'last-event-id': lastEventId }),
    },
    signal: gone.signal,
  }).catch(() => undefined);
  if (gone.signal.aborted) return;
  if (!stream || stream.status >= 500) {
    // After an error EventSource gives up, but after the end of a stream it reconnects with its Last-Event-ID.
    response.writeHead(200, EVENT_STREAM).end('retry: 2000\n\n');
    return;
  }
  if (!stream.ok || !stream.body) {
    answer(response, stream.status === 404 ? 404 : 400, { error: 'No such run' });
    return;
  }
  response.writeHead(200, EVENT_STREAM).flushHeaders();
  // Either side may disconnect; the browser notices and reconnects.
  await pipeline(Readable.fromWeb(stream.body), response).catch(() => response.destroy());
}

async function handle(request: IncomingMessage, response: ServerResponse): Promise<unknown> {
  const path = (request.url ?? '').split('?', 1)[0] ?? '';
  const route = `${request.method} ${path}`;
  const known = /(?:^|; )visitor=([0-9a-f-]{36})(?:;|$)/.exec(request.headers.cookie ?? '')?.[1];
  const page = request.method === 'GET' ? PAGE_FILES[path] : undefined;
  if (page) {
    const [file, type] = page;
    response.writeHead(200, {
      'content-type': type,
      'content-security-policy': "default-src 'none'; script-src 'self'; connect-src 'self'",
      ...(!known && {
        'set-cookie': `visitor=${randomUUID()}; HttpOnly; SameSite=Strict; Path=/`,
      }),
    });
    return response.end(await readFile(new URL(file, import.meta.url)));
  }
  if (known && route === 'POST /runs') return start(known, request, response);
  const id = /^GET \/runs\/([0-9a-f-]{36})\/events$/.exec(route)?.[1];
  if (known && id && owners.get(id) === known) return relay(id, request, response);
  return answer(response, 404, { error: 'Not found' });
}

function answer(response: ServerResponse, status: number, body: object) {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

const server = createServer((request, response) => {
  handle(request, response).catch((error: unknown) => {
    process.stderr.write(`${String(error)}\n`);
    if (response.headersSent) response.destroy();
    // Browsers must not see details of errors between this backend and the service.
    else if (error instanceof SyntaxError) answer(response, 400, { error: 'Not JSON' });
    else answer(response, 502, { error: 'Not available at the moment' });
  });
});
server.listen(Number(PORT), '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  process.stdout.write(`Listening on http://127.0.0.1:${port}\n`);
});
process.once('SIGTERM', () => {
  server.close();
  server.closeAllConnections();
});
