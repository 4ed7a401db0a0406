import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { Cluster } from './cluster.js';
import { ask } from './http.js';

describe('roles', () => {
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
  }, 120_000);

  afterAll(async () => {
    await cluster?.stop();
  }, 60_000);

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
    expect(await metrics(cluster.apis[0]?.output ?? '')).toMatch(/^agent_sessions_queue_depth 1$/m);

    cluster.workers[0]?.spawn();
    for (const giveUpAt = Date.now() + 30_000; Date.now() < giveUpAt; await delay(50)) {
      if ((await session()).body['status'] === 'completed') break;
    }
    expect((await session()).body['status']).toBe('completed');
    expect(await metrics(cluster.apis[0]?.output ?? '')).toMatch(/^agent_sessions_queue_depth 0$/m);
  }, 60_000);

  test('each tells its figures on the port of its own, and on no other', async () => {
    const ofWorker = await metrics(cluster.workers[0]?.output ?? '');
    for (const name of ['orphans', 'running_turns', 'queue_depth', 'lease_takeovers_total']) {
      expect(ofWorker).toMatch(new RegExp(`^agent_sessions_${name} 0$`, 'm'));
    }
    const ofApi = await metrics(cluster.apis[0]?.output ?? '');
    expect(ofApi).toMatch(/^agent_sessions_open_streams 0$/m);
    expect(ofApi).not.toContain('running_turns');
    expect((await ask(`${api()}/metrics`, { token: cluster.token })).status).toBe(404);
    expect(
      (await ask(metricsUrl(cluster.apis[0]?.output ?? '').replace('metrics', 'x'))).status,
    ).toBe(404);
  });
});

function metricsUrl(output: string): string {
  return [...output.matchAll(/Metrics on (http:[^\s"]+)/g)].at(-1)?.[1] ?? '';
}

async function metrics(output: string): Promise<string> {
  return (await ask(metricsUrl(output))).text;
}
