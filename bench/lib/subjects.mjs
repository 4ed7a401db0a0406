import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as delay } from 'node:timers/promises';
import { Pool } from 'pg';
import { tree } from './processes.mjs';
import { startHelper } from './rpc.mjs';

const HOST = fileURLToPath(new URL('./source-host.mjs', import.meta.url));
const READER = fileURLToPath(new URL('./reader.mjs', import.meta.url));
const PUBLISHER = fileURLToPath(new URL('./publisher.mjs', import.meta.url));

export const startReader = () => startHelper(READER);
export const startPublisher = () => startHelper(PUBLISHER);

/** A client of the service: JSON in, JSON out. */
export function apiClient(url, token) {
  const authorization = `Bearer ${token}`;
  const call = async (method, path, body) => {
    const response = await fetch(`${url}${path}`, {
      method,
      headers: { authorization },
      ...(body && {
        headers: { authorization, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(`${method} ${path}: ${JSON.stringify(answer)}`);
    return answer;
  };
  const port = Number(new URL(url).port);
  return {
    url,
    port,
    token,
    authorization,
    get: (path) => call('GET', path),
    post: (path, body) => call('POST', path, body),
    /** The address and headers for reading a session's stream. */
    stream: (id, headers = {}) => ({
      port,
      path: `/sessions/${id}/stream`,
      headers: { authorization, ...headers },
    }),
    /** Resolves when the session has reached this state. */
    async until(id, status, { limitMs = 120_000, everyMs = 50 } = {}) {
      const end = performance.now() + limitMs;
      for (;;) {
        const session = await call('GET', `/sessions/${id}`);
        if (session.status === status) return session;
        if (session.status === 'failed' || performance.now() > end)
          throw new Error(`session ${id} is ${session.status}: ${session.error}`);
        await delay(everyMs);
      }
    },
  };
}

/** The service with a source of messages instead of sandboxes; see source-host.mjs. */
export async function startSourceService({ profile, env = {} } = {}) {
  const dataDir = await mkdtemp(join(tmpdir(), 'bench-'));
  await chmod(dataDir, 0o755);
  const nodeFlags = ['--expose-gc', '--enable-source-maps'];
  if (profile) nodeFlags.push('--cpu-prof', `--cpu-prof-dir=${profile}`);
  const helper = await startHelper(HOST, { nodeFlags });
  const stop = async () => {
    await helper.call('stop').catch(() => undefined);
    await helper.stop();
    await rm(dataDir, { recursive: true, force: true });
  };
  try {
    const { url, token, databaseUrl } = await helper.call('start', {
      PATH: process.env.PATH,
      DATA_DIR: dataDir,
      SESSION_LIMIT: '1000000',
      WORKER_CONCURRENCY: '1000',
      HEARTBEAT_SECONDS: '3600',
      ...env,
    });
    const client = apiClient(url, token);
    const agent = await client.post('/agents', {
      name: 'bench',
      provider: 'shell',
      model: 'shell/bash',
    });
    const database = new Pool({ connectionString: databaseUrl, max: 2 });
    // If a measurement is aborted, its server ends before the pool does.
    database.on('error', () => undefined);
    return {
      ...client,
      agentId: agent.id,
      pid: helper.pid,
      databaseUrl,
      database,
      /** The processes of the service and its database. */
      pids: () => tree(helper.pid),
      allow: (upTo) => helper.call('allow', upTo),
      purge: () => helper.call('purge'),
      memory: () => helper.call('memory'),
      /**
       * @returns the id of a session whose runtime writes this many messages: all at once, or within the allowed
       *   credit.
       */
      async source(messages, options = {}) {
        const prompt = `bench ${JSON.stringify({ messages, ...options })}`;
        return (await client.post('/sessions', { agent_id: agent.id, prompt })).id;
      },
      async stop() {
        await database.end();
        await stop();
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}
