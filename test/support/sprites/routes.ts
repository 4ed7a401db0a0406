import type { IncomingMessage, ServerResponse } from 'node:http';
import { sendRefusal } from './faults.js';
import { serveFiles, textOf } from './files.js';
import { execOverHttp } from './sessions.js';
import type { ServiceDefinition } from './services.js';
import type { Rule } from './name-server.js';
import type { Sprite } from './sprite.js';

/** One request, taken apart. */
export interface Call {
  method: string;
  path: string;
  name: string | undefined;
  /** What follows the sprite's name. */
  rest: readonly string[];
  query: URLSearchParams;
}

/** Answers a request about one sprite. */
export async function serveSprite(
  sprite: Sprite,
  call: Call,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const [what = '', item, action] = call.rest;
  const { method, query } = call;
  switch (what) {
    case '':
      if (method === 'PUT') Object.assign(sprite, updateOf(await bodyOf(request)));
      return json(response, 200, sprite.describe());
    case 'policy':
      return servePolicy(sprite, method, request, response);
    case 'fs':
      return sprite.awake(() => serveFiles(sprite.machine, item ?? '', query, request, response));
    case 'exec':
      if (method === 'GET') return json(response, 200, { sessions: sessionsOf(sprite) });
      if (item === undefined) return runOverHttp(sprite, query, request, response);
      return killSession(sprite, item, query, response);
    case 'services':
      return sprite.awake(() => serveServices(sprite, call, request, response));
    case 'checkpoint': {
      const { comment } = await bodyOf<{ comment?: string }>(request);
      const id = await sprite.awake(() => sprite.checkpoint(comment));
      return lines(response, [
        { type: 'info', data: 'Creating checkpoint...' },
        { type: 'complete', data: `Checkpoint ${id} created` },
      ]);
    }
    case 'checkpoints':
      return serveCheckpoints(sprite, item, action, response);
    case 'restart':
      await sprite.restart();
      return json(response, 200, {
        sprite_name: sprite.name,
        machine_id: sprite.id,
        message: 'ok',
      });
    case 'check': {
      const checked = { status: 'healthy', checked_at: new Date() };
      return json(response, 200, { sprite_name: sprite.name, sprite_id: sprite.id, ...checked });
    }
    default:
      return notFound(response, what);
  }
}

function updateOf(body: { labels?: string[]; url_settings?: unknown }) {
  return {
    ...(body.labels && { labels: body.labels }),
    ...(body.url_settings !== undefined && { urlSettings: body.url_settings }),
  };
}

async function servePolicy(
  sprite: Sprite,
  method: string,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (method === 'GET') return json(response, 200, { rules: sprite.rules });
  const { rules } = await bodyOf<{ rules?: Rule[] }>(request);
  const isRule = ({ domain, action, include }: Rule) =>
    include === undefined
      ? /^(\*|(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*)$/.test(domain ?? '') &&
        (action === 'allow' || action === 'deny')
      : include === 'defaults';
  if (!Array.isArray(rules) || !rules.every(isRule)) {
    return sendRefusal(response, { status: 400, code: 'invalid_policy', message: 'not a policy' });
  }
  sprite.policies.push(rules);
  response.writeHead(204).end();
}

function sessionsOf(sprite: Sprite) {
  return [...sprite.sessions.values()].map(({ id, command, created, options }) => ({
    id,
    command: command.join(' '),
    workdir: options.directory,
    created,
    bytes_per_second: 0,
    is_active: true,
    tty: options.tty,
  }));
}

function runOverHttp(
  sprite: Sprite,
  query: URLSearchParams,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  for (const name of ['tty', 'id', 'detachable']) {
    if (!query.has(name)) continue;
    sendRefusal(response, {
      status: 400,
      code: 'invalid_request',
      message: `${name} needs a WebSocket`,
    });
    return Promise.resolve();
  }
  return sprite.awake(() => execOverHttp(sprite.machine, query, request, response));
}

function killSession(
  sprite: Sprite,
  id: string,
  query: URLSearchParams,
  response: ServerResponse,
): void {
  const session = sprite.sessions.get(id);
  if (session === undefined) return notFound(response, `session ${id}`);
  const signal = (query.get('signal') ?? 'TERM').replace(/^(SIG)?/, 'SIG');
  session.kill(signal as NodeJS.Signals);
  lines(response, [
    { type: 'signal', message: `sent ${signal}`, signal },
    { type: 'complete', message: 'done' },
  ]);
}

async function serveServices(
  sprite: Sprite,
  { method, rest }: Call,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const [, name, action] = rest;
  const { services } = sprite;
  if (name === undefined) return json(response, 200, services.list());
  if (name === 'signal' && method === 'POST') {
    const body = await bodyOf<{ name: string; signal: string }>(request);
    if (!services.has(body.name)) return notFound(response, body.name);
    const sent = services.signal(
      body.name,
      body.signal.replace(/^(SIG)?/, 'SIG') as NodeJS.Signals,
    );
    return void response.writeHead(sent ? 204 : 409).end();
  }
  if (method === 'PUT') {
    await services.put(name, await bodyOf<ServiceDefinition>(request));
    return lines(response, [{ type: 'started', timestamp: Date.now() }, { type: 'complete' }]);
  }
  if (!services.has(name)) return notFound(response, `service ${name}`);
  if (method === 'GET' && action === undefined) return json(response, 200, services.describe(name));
  if (method === 'GET') return lines(response, [{ type: 'complete' }]);
  if (method === 'DELETE') {
    await services.remove(name);
    return void response.writeHead(204).end();
  }
  if (action === 'stop' || action === 'restart') await services.stop(name);
  if (action === 'start' || action === 'restart') services.start(name);
  lines(response, [{ type: action === 'stop' ? 'stopped' : 'started' }, { type: 'complete' }]);
}

async function serveCheckpoints(
  sprite: Sprite,
  id: string | undefined,
  action: string | undefined,
  response: ServerResponse,
): Promise<void> {
  const found = sprite.checkpoints.map(({ folder: _folder, ...rest }) => rest);
  if (id === undefined) return json(response, 200, found);
  const one = found.find((each) => each.id === id);
  if (one === undefined) return notFound(response, `checkpoint ${id}`);
  if (action === undefined) return json(response, 200, one);
  // The sprite may be removed meanwhile.
  sprite.restore(id).catch(() => undefined);
  lines(response, [
    { type: 'info', data: `Restoring ${id}...` },
    { type: 'complete', data: 'Restore started' },
  ]);
}

async function bodyOf<T = object>(request: IncomingMessage): Promise<T> {
  return JSON.parse((await textOf(request)) || '{}') as T;
}

function json(response: ServerResponse, status: number, value: unknown): void {
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(value));
}

function lines(response: ServerResponse, values: readonly unknown[]): void {
  response.writeHead(200, { 'Content-Type': 'application/x-ndjson' });
  response.end(values.map((value) => `${JSON.stringify(value)}\n`).join(''));
}

function notFound(response: ServerResponse, what: string): void {
  sendRefusal(response, { status: 404, code: 'not_found', message: `there is no ${what}` });
}
