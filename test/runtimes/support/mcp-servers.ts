import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { OtherRoutes } from '../model-endpoint/model-endpoint.js';
import { answerMcp } from '../mcp-server.js';

export const STDIO_SECRET = 'stdio-secret-0123456789';
export const HTTP_SECRET = 'http-secret-0123456789-0123456789';

const SOURCE = readFileSync(new URL('../mcp-server.ts', import.meta.url), 'utf8');

/** A tool server that a sandbox starts as a process; everything that it takes is in its arguments. */
export function stdioServer(name: string): Record<string, unknown> {
  return {
    type: 'stdio',
    name,
    command: 'node',
    args: [
      '--input-type=module-typescript',
      '--disable-warning=ExperimentalWarning',
      '-e',
      `${SOURCE}\nserveStdio();`,
    ],
    env: { ECHO_SECRET: STDIO_SECRET },
  };
}

/** The tool server of {@link mcpRoutes}. */
export function httpServer(name: string, endpoint: string): Record<string, unknown> {
  return {
    type: 'http',
    name,
    url: `${endpoint}/mcp`,
    headers: { authorization: `Bearer ${HTTP_SECRET}` },
  };
}

/** The same over the older transport: answers come on a stream of the server's, not with the requests. */
export function sseServer(name: string, endpoint: string): Record<string, unknown> {
  return { ...httpServer(name, endpoint), type: 'sse', url: `${endpoint}/mcp-events` };
}

/** A server that cannot be started. */
export function brokenServer(name: string): Record<string, unknown> {
  return { type: 'stdio', name, command: 'no-such-program' };
}

/** Serves MCP at `/mcp` and `/mcp-events`, for whoever has the secret. */
export function mcpRoutes(): OtherRoutes {
  const streams = new Map<string, ServerResponse>();
  return (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://endpoint');
    if (!['/mcp', '/mcp-events', '/mcp-messages'].includes(pathname)) return false;
    if (request.headers.authorization !== `Bearer ${HTTP_SECRET}`) {
      response.writeHead(401).end();
    } else if (pathname === '/mcp-events') {
      openStream(request, response, streams);
    } else if (request.method !== 'POST') {
      response.writeHead(405).end();
    } else {
      const stream = streams.get(searchParams.get('stream') ?? '');
      serve(request, response, stream).catch(() => response.destroy());
    }
    return true;
  };
}

/** The first event says where to send messages to. */
function openStream(
  request: IncomingMessage,
  response: ServerResponse,
  streams: Map<string, ServerResponse>,
): void {
  if (request.method !== 'GET') return void response.writeHead(405).end();
  const id = randomUUID();
  streams.set(id, response);
  response.once('close', () => streams.delete(id));
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(`event: endpoint\ndata: /mcp-messages?stream=${id}\n\n`);
}

/** @param stream where the answer goes; without one, it goes with the response */
async function serve(
  request: IncomingMessage,
  response: ServerResponse,
  stream: ServerResponse | undefined,
): Promise<void> {
  let text = '';
  for await (const chunk of request.setEncoding('utf8')) text += String(chunk);
  const answer = answerMcp(JSON.parse(text) as Parameters<typeof answerMcp>[0], HTTP_SECRET);
  const json = answer ? JSON.stringify(answer) : undefined;
  if (stream && json) stream.write(`event: message\ndata: ${json}\n\n`);
  if (stream || !json) return void response.writeHead(202).end();
  response.writeHead(200, { 'content-type': 'application/json' }).end(json);
}
