import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { describeWith } from '../support/requirements.js';
import { prepareWorkload } from './chaos.js';
import { Cluster, LEASE_SECONDS } from './cluster.js';
import { ask } from './http.js';
import { Random } from './random.js';
import { expectedOutput, planScript, scriptOf } from './script.js';
import type { ServiceProcess } from './service-process.js';
import { StreamReader } from './stream-reader.js';
import { Tally } from './workload.js';

interface TurnRow {
  id: string;
  status: string;
  lease_owner: string | null;
  fencing: string;
  claims: number;
  commit_seq: string;
  spool_offset: string;
}

describeWith(['bubblewrap'], 'a worker that', () => {
  let cluster: Cluster;
  let agentId: string;
  let stop: AbortController;

  beforeAll(async () => {
    cluster = await Cluster.start({ api: 1, workers: 2 });
    await noteOwners(cluster);
    stop = new AbortController();
    ({ agentId } = await prepareWorkload(cluster, new Random(1), new Tally(), stop.signal, {
      readersPerSession: 1,
      turnSeconds: [1, 1],
    }));
  });

  afterAll(async () => {
    stop?.abort();
    await cluster?.stop();
  });

  /** A session that runs, with what it has to write and a reader of it. */
  async function running(seconds: number) {
    const plan = planScript(new Random(seconds), seconds);
    const api = cluster.apis[0]?.url ?? '';
    const { body } = await ask(`${api}/sessions`, {
      method: 'POST',
      token: cluster.token,
      body: { agent_id: agentId, prompt: scriptOf(plan, 1) },
    });
    const sessionId = String(body['id']);
    const reader = new StreamReader({
      sessionId,
      token: cluster.token,
      base: () => api,
      patience: () => undefined,
      signal: stop.signal,
    });
    const read = reader.read();
    await until(async () => reader.events.some(({ type }) => type === 'output'));
    const turn = await turnOf(sessionId);
    const worker = cluster.workers.find(({ pid }) => turn.lease_owner?.includes(`:${pid}:`));
    if (!worker) throw new Error(`nobody has the lease ${turn.lease_owner}`);
    return { sessionId, plan, reader, read, turn, worker };
  }

  async function turnOf(sessionId: string): Promise<TurnRow> {
    const [row] = await cluster.database.query<TurnRow>(
      'SELECT * FROM turns WHERE session_id = $1 ORDER BY turn_number DESC LIMIT 1',
      [sessionId],
    );
    if (!row) throw new Error('there is no turn');
    return row;
  }

  async function takenOver(sessionId: string, from: string | null): Promise<void> {
    await until(async () => {
      const { lease_owner: owner } = await turnOf(sessionId);
      return owner !== null && owner !== from;
    });
  }

  /** How a worker lost its lease: who had it next, and whether it had expired by then. */
  async function lossOf({ id, lease_owner: owner }: TurnRow): Promise<object | undefined> {
    const [loss] = await cluster.database.query<{ next: string | null; expired: boolean }>(
      'SELECT next, expired FROM test_owners WHERE turn_id = $1 AND previous = $2',
      [id, owner],
    );
    return loss;
  }

  async function complete({ reader, read, plan }: Awaited<ReturnType<typeof running>>) {
    expect(await read).toMatchObject({ type: 'exit', code: 0 });
    for (const stream of ['stdout', 'stderr'] as const) {
      const got = reader.events
        .filter((event) => event.stream === stream)
        .map(({ data }) => data)
        .join('');
      expect(got).toBe(expectedOutput(plan)[stream]);
    }
  }

  function spoolOf({ sessionId, turn }: Awaited<ReturnType<typeof running>>): string {
    return join(cluster.sandboxes, sessionId, 'launches', turn.id, 'spool');
  }

  async function restarted(worker: ServiceProcess): Promise<void> {
    worker.spawn();
    expect(await worker.ready()).toBe(true);
  }

  test('is killed loses its turns to the other one once its lease has expired', async () => {
    const session = await running(6);
    await session.worker.kill9();
    await takenOver(session.sessionId, session.turn.lease_owner);
    expect(await lossOf(session.turn)).toEqual({ next: expect.any(String), expired: true });
    await complete(session);
    await restarted(session.worker);
  });

  test('is stopped hands its turns over at once, and the runtime goes on', async () => {
    const session = await running(6);
    const stopped = session.worker.stop();
    await takenOver(session.sessionId, session.turn.lease_owner);
    await stopped;
    expect(session.worker.exitCode).toBe(0);
    // It gave its lease back; nobody had to wait for the end of it. How soon is measured elsewhere.
    expect(await lossOf(session.turn)).toEqual({ next: null, expired: false });
    await complete(session);
    await restarted(session.worker);
  });

  test('wakes up after its lease writes nothing and kills nothing', async () => {
    const session = await running(10);
    session.worker.signal('SIGSTOP');
    await takenOver(session.sessionId, session.turn.lease_owner);
    const successor = await turnOf(session.sessionId);
    session.worker.signal('SIGCONT');
    await complete(session);
    const after = await turnOf(session.sessionId);
    // The claims count, because a turn that freezes workers must fail eventually.
    expect(after).toMatchObject({
      status: 'completed',
      fencing: successor.fencing,
      claims: successor.claims,
    });
    expect(successor.claims).toBeGreaterThan(0);
    expect(await session.worker.isReady()).toBe(true);
  });

  test('does not hear that its output was committed does not commit it twice', async () => {
    const session = await running(8);
    for (let round = 0; round < 5; round += 1) {
      await session.worker.proxy.swallowAnswerTo('turns-commit-output');
    }
    await complete(session);
    // It was the same worker all along.
    expect((await turnOf(session.sessionId)).fencing).toBe(session.turn.fencing);
  });

  test('does not hear that the turn has ended ends it once', async () => {
    const session = await running(3);
    await session.worker.proxy.swallowAnswerTo('turns-end', 'COMMIT');
    await complete(session);
    expect(await turnOf(session.sessionId)).toMatchObject({
      status: 'completed',
      fencing: session.turn.fencing,
    });
    await until(async () => !existsSync(spoolOf(session)));
  });

  test('cannot reach the database for longer than its lease goes on when it can', async () => {
    const session = await running(10);
    for (const { proxy } of cluster.workers) proxy.blackHole();
    await delay(LEASE_SECONDS * 1000 + 1_000);
    for (const { proxy } of cluster.workers) proxy.heal();
    await complete(session);
  });

  test('dies together with the database and everything else: all goes on', async () => {
    const session = await running(8);
    const ended = cluster.processes.map((member) => member.kill9());
    cluster.database.crash();
    await Promise.all(ended);
    await cluster.database.query('SELECT 1');
    for (const member of cluster.processes) member.spawn();
    for (const member of cluster.processes) expect(await member.ready()).toBe(true);
    await complete(session);
  });
});

/** Lets the database itself note each change of a lease's owner, by its own clock. */
async function noteOwners({ database }: Cluster): Promise<void> {
  await database.query(
    'CREATE TABLE test_owners (turn_id uuid, previous text, next text, expired boolean)',
  );
  await database.query(
    `CREATE FUNCTION test_note_owner() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN
       INSERT INTO test_owners
       VALUES (OLD.id, OLD.lease_owner, NEW.lease_owner, OLD.lease_expires_at <= now());
       RETURN NULL;
     END $$`,
  );
  await database.query(
    `CREATE TRIGGER test_note_owner AFTER UPDATE ON turns FOR EACH ROW
     WHEN (OLD.lease_owner IS NOT NULL AND OLD.lease_owner IS DISTINCT FROM NEW.lease_owner)
     EXECUTE FUNCTION test_note_owner()`,
  );
}

async function until(condition: () => Promise<boolean>, limitMs = 120_000): Promise<void> {
  const giveUpAt = Date.now() + limitMs;
  while (!(await condition())) {
    if (Date.now() > giveUpAt) throw new Error('it did not come to pass in time');
    await delay(25);
  }
}
