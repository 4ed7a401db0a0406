// `opencode serve` (Bun) has one event bus for each folder, and all readers of a folder get all its events. Only a real
// session with a model can publish text, except for notifications of its terminal, which any client may post: these
// carry the messages. So only its bus and its stream are compared, without an agent or a log.
import { mkdir } from 'node:fs/promises';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { findPeer, whyMissing } from './peers.mjs';
import { setTimeout as delay } from 'node:timers/promises';
import { startServer } from './server-process.mjs';

export const missing = () => whyMissing('opencode');

export async function start() {
  const server = await startServer({
    program: findPeer('opencode'),
    args: (port) => ['serve', '--hostname', '127.0.0.1', '--port', String(port), '--pure'],
    env: { OPENCODE_DISABLE_AUTOUPDATE: '1', OPENCODE_DISABLE_MODELS_FETCH: '1' },
    prepare: (folder) => mkdir(join(folder, 'channels')),
  });
  const { port } = server;
  await untilAnswering(`http://127.0.0.1:${port}/path`);
  const query = (channel) => {
    const folder = join(server.folder, 'channels', channel);
    mkdirSync(folder, { recursive: true });
    return `directory=${encodeURIComponent(folder)}`;
  };
  return {
    port,
    ids: false,
    // Every stream starts with one of its own events.
    same: false,
    // Each needs ten times the memory of the others; fewer are enough to show it.
    idle: { streams: 1_000, channels: 10 },
    // Its queue is unbounded, and it processes the whole queue before anything else.
    ahead: 20,
    pids: () => [server.pid],
    publish: (channel) => `/tui/show-toast?${query(channel)}`,
    wrap: { type: 'application/json', before: '{"variant":"info","message":"', after: '"}' },
    stream: (channel) => ({ port, path: `/event?${query(channel)}` }),
    stop: server.stop,
  };
}

/** It listens before it can answer, and never answers earlier requests. */
async function untilAnswering(url) {
  for (let attempt = 0; ; attempt += 1) {
    const answer = await fetch(url, { signal: AbortSignal.timeout(2_000) }).catch(() => undefined);
    if (answer?.ok) return;
    if (attempt === 10) throw new Error('opencode does not answer');
    await delay(200);
  }
}
