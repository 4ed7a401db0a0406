// sandbox-agent (Rust) starts an agent program for each of its servers, reads lines of JSON from it and streams each to
// all readers as an event. It is the closest to the service: the output of a program, streamed to readers. Unlike the
// service, it has no sandbox around the program (it is meant to run in one), no database and no users. It keeps the
// last 1,024 events in memory, and a reader that falls more than 512 behind loses events without notice.
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { MESSAGE_FILL, pacedScript } from '../lib/messages.mjs';
import { tree } from '../lib/processes.mjs';
import { findPeer, whyMissing } from './peers.mjs';
import { startServer } from './server-process.mjs';

const FORM = ['{"jsonrpc":"2.0","method":"session/update","params":{"text":"', '"}}'];

/**
 * Its test agent is a program in its folder. This script replaces it: it prints the requested messages in bash like the
 * service's runtime does, one message per write.
 */
const AGENT = `#!/bin/bash
n=0; fill='${MESSAGE_FILL}'
value() { [[ $line =~ \\"$1\\":([0-9]+) ]] && printf -v "$1" %s "\${BASH_REMATCH[1]}"; }
while read -r line; do
  case $line in
    *bench/paced*) value count; value interval_ms; ${pacedScript({ count: '$count', intervalMs: '$interval_ms', form: FORM }).trim()};;
    *bench/allow*) value up_to
      while ((n < up_to)); do
        ((n += 1)); text="@s=$n @t=\${EPOCHREALTIME/./} $fill"
        printf '${FORM[0]}%s${FORM[1]}\\n' "\${text:0:149}"
      done;;
  esac
done
`;

export const missing = () => whyMissing('sandbox-agent');

export async function start() {
  const server = await startServer({
    program: findPeer('sandbox-agent'),
    args: (port) => ['server', '--no-token', '--no-telemetry', '--port', String(port)],
    env: { RUST_LOG: 'error' },
    async prepare(folder) {
      const programs = join(folder, 'data', 'sandbox-agent', 'bin', 'agent_processes');
      await mkdir(programs, { recursive: true });
      await writeFile(join(programs, 'mock-acp'), AGENT);
      await chmod(join(programs, 'mock-acp'), 0o755);
    },
  });
  const { port } = server;
  const path = (channel) => `/v1/acp/${channel}`;
  const request = async (method, channel, body) => {
    const response = await fetch(`http://127.0.0.1:${port}${path(channel)}?agent=mock`, {
      method,
      signal: AbortSignal.timeout(10_000),
      ...(body && {
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ jsonrpc: '2.0', ...body }),
      }),
    });
    if (!response.ok) throw new Error(`sandbox-agent: ${await response.text()}`);
  };
  const tell = (channels, method, params) =>
    Promise.all(channels.map((channel) => request('POST', channel, { method, params })));
  let opened = [];
  const feed = {
    // A stream only exists once its agent does.
    open: async (channels) => {
      opened = channels;
      await tell(channels, 'bench/open', {});
    },
    paced: (channels, rate) =>
      tell(channels, 'bench/paced', {
        count: 100_000,
        interval_ms: (1000 * channels.length) / rate,
      }),
    saturate: async () => undefined,
    allow: (upTo) => tell(opened, 'bench/allow', { up_to: upTo }),
    // Its answer to a request to end an agent only comes after the agent has ended by itself.
    async stop() {
      for (const pid of tree(server.pid).slice(1)) process.kill(pid, 'SIGKILL');
      await Promise.all(opened.map((channel) => request('DELETE', channel)));
      opened = [];
    },
  };
  return {
    ids: false,
    // Ten times the memory of the others each: fewer show as much.
    idle: { streams: 1_000, channels: 10 },
    ahead: 400,
    // Excludes its agents, because the service's agents are not counted either.
    pids: () => [server.pid],
    stream: (channel) => ({ port, path: path(channel) }),
    feed,
    async stop() {
      await feed.stop();
      await server.stop();
    },
  };
}
