import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { anthropic } from './anthropic.js';
import type { Tokens } from '../../../src/gateway/usage/meter.js';
import { faultIn, replyTo, type ModelApi } from './conversation.js';
import { gemini } from './gemini.js';
import { openaiChat } from './openai-chat.js';
import { openaiResponses } from './openai-responses.js';

/** The key that the endpoint takes, by whatever header an API has for it. */
export const MODEL_KEY = 'scripted-key-0123456789abcdef';

/** Between the events of a slow answer. */
const SLOW_MS = 300;

/** A request as it came in. */
export interface LoggedRequest {
  path: string;
  body: unknown;
  /** The same as text, to search in. */
  text: string;
  authorized: boolean;
  /** Whether a streamed answer was sent completely. */
  isAnswered: boolean;
  /** What the answer has reported so far. */
  used?: Tokens;
}

/** The sum of the usage that the model has reported in its answers. */
export function usedBy(requests: readonly LoggedRequest[]): Tokens & { requests: number } {
  const answered = requests.flatMap(({ used }) => used ?? []);
  const sum = (name: keyof Tokens) => answered.reduce((all, used) => all + used[name], 0);
  return {
    requests: answered.length,
    input_tokens: sum('input_tokens'),
    output_tokens: sum('output_tokens'),
    cache_read_input_tokens: sum('cache_read_input_tokens'),
    cache_creation_input_tokens: sum('cache_creation_input_tokens'),
  };
}

export interface ModelEndpoint {
  /** `http://127.0.0.1:<port>` */
  readonly url: string;
  /** All requests to the model APIs so far, titles and the like included. */
  readonly requests: readonly LoggedRequest[];
  stop(): Promise<void>;
}

/** Answers requests that are not for a model; `false` for those that it does not know. */
export type OtherRoutes = (request: IncomingMessage, response: ServerResponse) => boolean;

const APIS: readonly ModelApi[] = [anthropic, openaiResponses, openaiChat, gemini];

/** Starts a model that does what it is told, on a free port of loopback. */
export async function startModelEndpoint(other?: OtherRoutes): Promise<ModelEndpoint> {
  const requests: LoggedRequest[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((request, response) => {
    if (other?.(request, response)) return;
    answer(request, response, requests).catch(() => response.destroy());
  });
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    stop: async () => {
      const closed = new Promise((resolve) => void server.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  log: LoggedRequest[],
): Promise<void> {
  const url = new URL(request.url ?? '/', 'http://endpoint');
  const text = await readAll(request);
  const api = APIS.find(({ matches }) => matches.test(url.pathname));
  if (!api || request.method !== 'POST') {
    send(response, 404, { error: { message: `no ${url.pathname} here` } });
    return;
  }
  const body = JSON.parse(text) as { model?: string; stream?: boolean };
  const authorized = keyOf(request, url) === MODEL_KEY;
  const entry: LoggedRequest = { path: url.pathname, body, text, authorized, isAnswered: false };
  log.push(entry);
  const conversation = api.read(body);
  const fault = faultIn(conversation);
  const status = authorized ? Number(fault) : 401;
  if (status > 0) return send(response, status, api.error(status));
  if (fault === 'hang') return;

  const model = body.model ?? /models\/([^:]+)/.exec(url.pathname)?.[1] ?? 'unknown';
  const reply = replyTo(conversation);
  const usage = usageFor(log.length, api.writesCache === true);
  const streamed = body.stream ?? url.pathname.endsWith(':streamGenerateContent');
  // A program may ask again without a stream.
  if (!streamed && fault === 'cut') return void response.destroy();
  if (!streamed && api.whole) {
    entry.used = usage;
    return send(response, 200, api.whole(reply, model, usage));
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  for (const [index, [event, data, used]] of api.stream(reply, model, usage).entries()) {
    if (fault === 'cut' && index > 0) break;
    const json = typeof data === 'string' ? data : JSON.stringify(data);
    if (fault === 'slow') await delay(SLOW_MS);
    entry.used = used ?? entry.used;
    response.write(`${event === '' ? '' : `event: ${event}\n`}data: ${json}\n\n`);
  }
  if (fault === 'cut') setTimeout(() => response.destroy(), 50);
  else response.end();
  entry.isAnswered = true;
}

/** Other figures for each request, so that sums show what is missing or counted twice. */
function usageFor(number: number, writesCache: boolean): Tokens {
  return {
    input_tokens: 1000 + 3 * number,
    output_tokens: 100 + number,
    cache_read_input_tokens: 7 * number,
    cache_creation_input_tokens: writesCache ? 11 * number : 0,
  };
}

function keyOf({ headers }: IncomingMessage, url: URL): string | undefined {
  const bearer = headers.authorization?.replace(/^Bearer /, '');
  const named = [headers['x-api-key'], headers['x-goog-api-key'], url.searchParams.get('key')];
  return bearer ?? named.flat().find((key) => typeof key === 'string');
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

async function readAll(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}
