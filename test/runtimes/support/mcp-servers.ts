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

/** A server that cannot be started. */
export function brokenServer(name: string): Record<string, unknown> {
  return { type: 'stdio', name, command: 'no-such-program' };
}

/** Serves MCP at `/mcp`, for whoever has the secret. */
export const mcpRoutes: OtherRoutes = (request, response) => {
  if (request.url !== '/mcp') return false;
  serve(request, response).catch(() => response.destroy());
  return true;
};

async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
  if (request.headers.authorization !== `Bearer ${HTTP_SECRET}`) {
    response.writeHead(401).end();
    return;
  }
  if (request.method !== 'POST') {
    response.writeHead(405).end();
    return;
  }
  let text = '';
  for await (const chunk of request.setEncoding('utf8')) text += String(chunk);
  const answer = answerMcp(JSON.parse(text) as Parameters<typeof answerMcp>[0], HTTP_SECRET);
  response.writeHead(answer ? 200 : 202, { 'content-type': 'application/json' });
  response.end(answer ? JSON.stringify(answer) : undefined);
}
