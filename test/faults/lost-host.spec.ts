import { afterEach, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { describeWith } from '../support/requirements.js';
import { Cluster } from './cluster.js';
import { ask } from './http.js';

const HOST_LOST_SECONDS = 4;

describeWith(['bubblewrap'], 'a host that does not come back', () => {
  let cluster: Cluster | undefined;
  afterEach(async () => {
    await cluster?.stop();
  });

  test('takes its turns with it: they end in an error, and its sandboxes are forgotten', async () => {
    cluster = await Cluster.start({
      api: 1,
      workers: 2,
      ownFolders: true,
      env: { HOST_LOST_SECONDS: String(HOST_LOST_SECONDS) },
    });
    const { database, token } = cluster;
    const base = cluster.apis[0]?.url ?? '';
    const post = async (path: string, body: object) =>
      (await ask(base + path, { method: 'POST', token, body })).body;
    const agent = await post('/agents', { name: 'a', provider: 'shell', model: 'shell/bash' });
    const create = (prompt: string) => post('/sessions', { agent_id: agent['id'], prompt });
    const statusOf = async (id: unknown) =>
      (await ask(`${base}/sessions/${String(id)}`, { token })).body;

    const sessions = await Promise.all(Array.from({ length: 8 }, () => create('sleep 25')));
    const placed = await eventually(async () => {
      const rows = await database.query<{ id: string; owner: string | null }>(
        'SELECT session_id AS id, lease_owner AS owner FROM turns',
      );
      return rows.every(({ owner }) => owner !== null) && rows.length === 8 ? rows : undefined;
    });
    const victim = cluster.workers.find(({ pid }) =>
      placed.some(({ owner }) => owner?.includes(`:${pid}:`)),
    );
    const there = placed.filter(({ owner }) => owner?.includes(`:${victim?.pid}:`));
    const elsewhere = placed.filter((row) => !there.includes(row));
    const killed = String(victim?.pid);
    await victim?.kill9();

    const [{ seen } = { seen: '' }] = await database.query<{ seen: string }>(
      `SELECT max(seen_at)::text AS seen FROM workers WHERE owner LIKE '%:' || $1 || ':%'`,
      [killed],
    );
    await eventually(async () => {
      const states = await Promise.all(there.map(async ({ id }) => (await statusOf(id))['status']));
      return states.every((status) => status === 'failed') || undefined;
    });
    // Not before its time.
    const [{ early } = { early: '' }] = await database.query<{ early: string }>(
      `SELECT count(*) AS early FROM turns
       WHERE ended_at < $1::timestamptz + make_interval(secs => $2)`,
      [seen, HOST_LOST_SECONDS],
    );
    expect(early).toBe('0');
    for (const { id } of there) {
      expect(await statusOf(id)).toMatchObject({
        error: 'The host of the sandbox is lost',
        exit_code: null,
      });
      const stream = await ask(`${base}/sessions/${id}/stream`, { token });
      expect(stream.text).toMatch(/"type":"error".*The host of the sandbox is lost/);
    }
    for (const { id } of elsewhere) expect((await statusOf(id))['status']).toBe('running');
    const left = await database.query<{ id: string }>('SELECT session_id AS id FROM sandboxes');
    expect(left.map(({ id }) => id).sort()).toEqual(elsewhere.map(({ id }) => id).sort());
    expect(sessions).toHaveLength(8);

    // It does come back: what it still has is nobody's, and goes.
    victim?.spawn();
    expect(await victim?.ready()).toBe(true);
    await eventually(async () => (await cluster?.processesOf(victim)) === 0 || undefined);
  });
});

async function eventually<T>(look: () => Promise<T | undefined>): Promise<T> {
  for (const giveUpAt = Date.now() + 120_000; Date.now() < giveUpAt; await delay(100)) {
    const found = await look();
    if (found !== undefined) return found;
  }
  throw new Error('it did not come to pass in time');
}
