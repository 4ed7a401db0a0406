import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { EventStreamClient } from '../support/event-stream-client.js';
import { describeWith } from '../support/requirements.js';
import { startService } from '../support/service.js';
import { eventually } from '../support/sessions.js';
import { createTestDatabase } from '../support/test-database.js';
import { Cluster } from './cluster.js';
import { ask } from './http.js';
import type { ServiceProcess } from './service-process.js';

describeWith(['bubblewrap'], 'roles', () => {
  let cluster: Cluster;
  let agentId: string;

  beforeAll(async () => {
    cluster = await Cluster.start({ api: 1, workers: 1, env: { METRICS_PORT: '0' } });
    const { body } = await ask(`${api()}/agents`, {
      method: 'POST',
      token: cluster.token,
      body: { name: 'roles', provider: 'shell', model: 'shell/bash' },
    });
    agentId = String(body['id']);
  });

  afterAll(async () => {
    await cluster?.stop();
  });

  const api = () => cluster.apis[0]?.url ?? '';
  const worker = () => cluster.workers[0]?.url ?? '';

  test.each(['/healthz', '/readyz', '/readyz?verbose=1'])('a worker answers %s', async (path) => {
    expect((await ask(worker() + path)).status).toBe(200);
  });

  test.each(['/', '/sessions', '/agents', '/docs', '/openapi.json', '/metrics', '/healthz/x'])(
    'a worker serves nothing at %s, with a token or without',
    async (path) => {
      for (const token of [undefined, cluster.token]) {
        const answer = await ask(worker() + path, { token });
        expect(answer).toMatchObject({ status: 404, body: { detail: 'Not found' } });
      }
    },
  );

  test('a worker takes no session', async () => {
    const answer = await ask(`${worker()}/sessions`, {
      method: 'POST',
      token: cluster.token,
      body: { agent_id: agentId, prompt: 'exit 0' },
    });
    expect(answer).toMatchObject({ status: 404, body: { detail: 'Not found' } });
  });

  test('an api process streams all that a worker writes, whatever its characters', async () => {
    const { body } = await ask(`${api()}/sessions`, {
      method: 'POST',
      token: cluster.token,
      body: { agent_id: agentId, prompt: 'yes 世界世界世界世界世界世界世界世界 | head -n 100000' },
    });
    const stream = new EventStreamClient(`${api()}/sessions/${String(body['id'])}/stream`, {
      token: cluster.token,
    });
    await stream.end();
    expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
    expect(stream.output() === `${'世界'.repeat(8)}\n`.repeat(100_000)).toBe(true);
  });

  test('an api process runs no turn, and without a worker they wait', async () => {
    await cluster.workers[0]?.stop();
    const { status, body } = await ask(`${api()}/sessions`, {
      method: 'POST',
      token: cluster.token,
      body: { agent_id: agentId, prompt: 'exit 0' },
    });
    expect(status).toBe(202);
    await delay(1_500);
    const session = () => ask(`${api()}/sessions/${String(body['id'])}`, { token: cluster.token });
    expect((await session()).body['status']).toBe('pending');
    await shows(cluster.apis[0], 'queue_depth 1');

    cluster.workers[0]?.spawn();
    await eventually(
      async () => (await session()).body['status'] === 'completed',
      'the turn to be run',
    );
    await shows(cluster.apis[0], 'queue_depth 0');
  });

  test('each tells its figures on the port of its own, and on no other', async () => {
    for (const name of ['orphans', 'running_turns', 'queue_depth', 'lease_takeovers_total'])
      await shows(cluster.workers[0], `${name} 0`);
    await shows(cluster.apis[0], 'open_streams 0');
    expect(await metrics(cluster.apis[0])).not.toContain('running_turns');
    expect((await ask(`${api()}/metrics`, { token: cluster.token })).status).toBe(404);
    const beside = cluster.apis[0]?.metricsUrl.replace('metrics', 'x') ?? '';
    expect((await ask(beside)).status).toBe(404);
  });
});

/** Waits for a sample: what a turn or a stream was counted for ends a little after it. */
async function shows(process: ServiceProcess | undefined, sample: string): Promise<void> {
  await eventually(
    async () => (await metrics(process)).split('\n').includes(`agent_sessions_${sample}`),
    sample,
  );
}

async function metrics(process: ServiceProcess | undefined): Promise<string> {
  return (await ask(process?.metricsUrl ?? '')).text;
}

test('a worker is not ready before it has found out whether it can make sandboxes', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'engine-'));
  let asked = 0;
  // The start asks for limits first, and waits for the answer; whoever asks then waits for seconds.
  const engine = createServer((_request, response) => {
    asked += 1;
    if (asked === 1) response.writeHead(500).end();
  }).listen(join(folder, 'socket'));
  const database = await createTestDatabase();
  try {
    const worker = await startService({
      databaseUrl: database.url,
      env: {
        APP_ROLE: 'worker',
        SANDBOX_DRIVER: 'docker',
        SANDBOX_IMAGE: 'any',
        DOCKER_HOST: `unix://${folder}/socket`,
      },
    });
    try {
      const { status, body } = await ask(`${worker.url}/readyz`);
      expect([status, body['detail']]).toEqual([
        503,
        'The worker cannot make sandboxes: it has not tried yet',
      ]);
    } finally {
      engine.close();
      engine.closeAllConnections();
      await worker.stop();
    }
  } finally {
    await database.drop();
    await rm(folder, { recursive: true });
  }
});

test('a worker that cannot make sandboxes is alive and not ready', async () => {
  const worker = await startService({ env: { APP_ROLE: 'worker', DISK_WATERMARK: '900000GiB' } });
  try {
    expect((await ask(`${worker.url}/healthz`)).status).toBe(200);
    const detail = /^The worker cannot make sandboxes: the host is short of disk/;
    await eventually(async () => {
      const { status, body } = await ask(`${worker.url}/readyz`);
      expect(status).toBe(503);
      return detail.test(String(body['detail']));
    }, 'the reason');
  } finally {
    await worker.stop();
  }
});
