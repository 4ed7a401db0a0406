import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { DataSource } from 'typeorm';
import { createDataSource } from '../../src/database/data-source.js';
import { Sql } from '../../src/database/sql.js';
import { SandboxesRepository } from '../../src/sandboxes/lifecycle/sandboxes.repository.js';
import {
  findSandbox,
  forgetSandboxesOfHost,
  markSandboxes,
  recordSandboxes,
  restSandbox,
  wakeSandbox,
} from '../../src/sandboxes/lifecycle/session-sandboxes.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';

const PLACE = { driver: 'local', host: 'here' };
const ROUNDS = 40;

/** What one process has: connections of its own, and a name as a pool or a reaper. */
class Process {
  readonly name = randomUUID();
  readonly owner = { name: this.name, seconds: 60 };
  readonly sql: Sql;
  readonly sandboxes: SandboxesRepository;

  constructor(readonly dataSource: DataSource) {
    this.sql = new Sql(dataSource);
    this.sandboxes = new SandboxesRepository(this.sql);
  }

  static async connect(url: string): Promise<Process> {
    return new Process(await createDataSource({ url, poolSize: 4 }).initialize());
  }

  /** As a claim does for a session's first turn. */
  async active(sessionId: string = randomUUID()): Promise<string> {
    const text = recordSandboxes('claimed', { driver: '$2', host: '$3' });
    await this.dataSource.query(`WITH claimed AS (SELECT $1::uuid AS session_id) ${text}`, [
      sessionId,
      PLACE.driver,
      PLACE.host,
    ]);
    return sessionId;
  }

  async idle(): Promise<string> {
    const id = await this.active();
    await restSandbox(this.sql, id);
    return id;
  }

  async ready(): Promise<string> {
    const id = randomUUID();
    await this.sandboxes.record(id, 'warming', PLACE, this.owner);
    await this.sandboxes.markReady(id, this.name);
    return id;
  }

  async take(): Promise<string[]> {
    return (await this.sandboxes.take(PLACE, this.owner)).map(({ sandboxId }) => sandboxId);
  }
}

let database: TestDatabase;
let one: Process;
let other: Process;

beforeAll(async () => {
  database = await createTestDatabase();
  one = await Process.connect(database.url);
  other = await Process.connect(database.url);
});
afterAll(async () => {
  await one?.dataSource.destroy();
  await other?.dataSource.destroy();
  await database?.drop();
});
beforeEach(async () => {
  await one.dataSource.query('DELETE FROM sandboxes');
});

async function rowOf(id: string): Promise<Record<string, unknown> | undefined> {
  const rows: Record<string, unknown>[] = await one.dataSource.query(
    'SELECT * FROM sandboxes WHERE session_id = $1',
    [id],
  );
  return rows[0];
}
const stateOf = async (id: string): Promise<unknown> => (await rowOf(id))?.['state'];

/** Both at the same moment; which one is sent first changes from round to round. */
async function race<A, B>(
  round: number,
  first: () => Promise<A>,
  second: () => Promise<B>,
): Promise<[A, B]> {
  if (round % 2 === 0) return Promise.all([first(), second()]);
  const late = second();
  return Promise.all([first(), late]);
}
const rounds = Array.from({ length: ROUNDS }, (_, round) => round);

describe('the states of a sandbox', () => {
  test('follow the turns of its session', async () => {
    const id = await one.active();
    expect(await stateOf(id)).toBe('active');
    await one.active(id);
    await restSandbox(one.sql, id);
    expect(await rowOf(id)).toMatchObject({ state: 'idle', owner: null });
    expect(await one.sandboxes.idle(PLACE)).toEqual([{ sessionId: id, sandboxId: id }]);
    expect(await wakeSandbox(one.sql, id)).toBe(true);
    expect(await stateOf(id)).toBe('active');
    expect(await one.sandboxes.idle(PLACE)).toEqual([]);
    expect(await findSandbox(one.sql, id)).toEqual({ id, ...PLACE });
    await markSandboxes(one.sql, [id]);
    expect(await stateOf(id)).toBe('deleting');
    expect(await findSandbox(one.sql, id)).toBeUndefined();
    expect(await one.take()).toEqual([id]);
    await one.sandboxes.forget(id);
    expect(await rowOf(id)).toBeUndefined();
  });

  test('never leave "deleting", and keep the time since when', async () => {
    const id = await one.idle();
    await markSandboxes(one.sql, [id]);
    const before = await rowOf(id);
    await restSandbox(one.sql, id);
    await one.active(id);
    await markSandboxes(one.sql, [id]);
    expect(await wakeSandbox(one.sql, id)).toBe(false);
    await one.sandboxes.markTheseIdle([id]);
    expect(await rowOf(id)).toEqual(before);
    await one.take();
    expect(await rowOf(id)).toEqual({ ...before, ...(await ownerOf(id)) });
    expect((await rowOf(id))?.['state_since']).toEqual(before?.['state_since']);
  });

  async function ownerOf(id: string) {
    const { owner, owner_until, reaper, reaper_until } = (await rowOf(id)) ?? {};
    expect(owner).toBe(one.name);
    return { owner, owner_until, reaper, reaper_until };
  }

  test('let only marked sandboxes be forgotten', async () => {
    const ids = [await one.active(), await one.idle(), await one.ready()];
    for (const id of ids) await one.sandboxes.forget(id);
    expect(await one.sandboxes.known(ids)).toEqual(new Set(ids));
  });

  test('say what is left of a lost host', async () => {
    const [lost, kept, warm] = [await one.idle(), await one.active(), await one.ready()];
    await forgetSandboxesOfHost(one.sql, PLACE, [lost]);
    expect(await one.sandboxes.known([lost, kept, warm])).toEqual(new Set([kept]));
  });
});

describe('of two processes that race', () => {
  test('a prompt and a reaper, one gets the idle sandbox', async () => {
    for (const round of rounds) {
      const id = await one.idle();
      const [woken] = await race(
        round,
        () => wakeSandbox(one.sql, id),
        () => other.sandboxes.markIdle(0),
      );
      expect(await stateOf(id)).toBe(woken ? 'active' : 'deleting');
    }
  });

  test('a turn that completes and a termination leave the sandbox marked', async () => {
    for (const round of rounds) {
      const id = await one.active();
      await race(
        round,
        () => restSandbox(one.sql, id),
        () => markSandboxes(other.sql, [id]),
      );
      expect(await stateOf(id)).toBe('deleting');
    }
  });

  test('two reapers never take the same sandbox', async () => {
    const ids = await Promise.all(rounds.map(() => one.idle()));
    await markSandboxes(one.sql, ids);
    const [mine, theirs] = await race(
      0,
      () => one.take(),
      () => other.take(),
    );
    expect(mine.filter((id) => theirs.includes(id))).toEqual([]);
    const rest = await other.take();
    expect(new Set([...mine, ...theirs, ...rest])).toEqual(new Set(ids));
    // Until the one that has them lets go of them, or dies.
    await one.sandboxes.release(one.name);
    expect(new Set(await other.take())).toEqual(new Set(ids));
  });

  test('two reapers take an idle sandbox once', async () => {
    for (const round of rounds) {
      const id = await one.idle();
      const [mine, theirs] = await race(
        round,
        () => one.sandboxes.markTheseIdle([id]).then(() => one.take()),
        () => other.sandboxes.markIdle(0).then(() => other.take()),
      );
      expect([...mine, ...theirs].filter((each) => each === id)).toHaveLength(1);
      expect(await rowOf(id)).toMatchObject({ owner: mine.includes(id) ? one.name : other.name });
    }
  });

  test('a pool and a reaper: a sandbox that its pool has not renewed is the reaper’s for good', async () => {
    for (const round of rounds) {
      const id = randomUUID();
      await one.sandboxes.record(id, 'warming', PLACE, { name: one.name, seconds: -1 });
      const [ready, taken] = await race(
        round,
        () => one.sandboxes.markReady(id, one.name),
        () => other.take(),
      );
      // While the pool marks it, a reaper passes it over once.
      if (!ready) expect(taken).toContain(id);
      else if (!taken.includes(id)) expect(await other.take()).toContain(id);
      expect(await rowOf(id)).toMatchObject({ state: 'deleting', owner: other.name });
      expect(await one.sandboxes.markReady(id, one.name)).toBe(false);
      expect(await one.sandboxes.discard(id, one.name)).toBe(false);
    }
  });
});

/** The statements of the version before this column. */
const OLDER = {
  claim: `INSERT INTO sandboxes (session_id, driver, host) VALUES ($1, 'local', 'here')
    ON CONFLICT (session_id) DO NOTHING`,
  rest: `UPDATE sandboxes SET idle_since = CASE WHEN 'completed' = 'completed' THEN now() END,
    doomed_at = CASE WHEN 'completed' = 'completed' THEN doomed_at ELSE now() END
    WHERE session_id = $1`,
  wake: `UPDATE sandboxes SET idle_since = NULL
    WHERE session_id = $1 AND doomed_at IS NULL RETURNING session_id`,
  doom: `UPDATE sandboxes SET doomed_at = coalesce(doomed_at, now()) WHERE session_id = $1`,
  take: `UPDATE sandboxes SET reaper = 'older', reaper_until = now() + make_interval(secs => 30)
    WHERE session_id IN (
      SELECT session_id FROM sandboxes WHERE session_id = $1 AND doomed_at IS NOT NULL
        AND (reaper_until IS NULL OR reaper_until <= now() OR reaper = 'older')
      FOR UPDATE SKIP LOCKED) RETURNING session_id`,
  keep: `INSERT INTO sandboxes (session_id, driver, host, doomed_at, reaper, reaper_until)
    VALUES ($1, 'local', 'here', now(), 'warm older', now() + make_interval(secs => 30))`,
  renew: `UPDATE sandboxes SET reaper_until = now() - make_interval(secs => 1)
    WHERE session_id = $1 AND reaper = 'warm older' RETURNING session_id`,
  release: `UPDATE sandboxes SET reaper = NULL, reaper_until = NULL WHERE reaper = 'older'`,
};

describe('beside a process of the version before', () => {
  async function older(statement: keyof typeof OLDER, id: string): Promise<unknown[]> {
    const values = statement === 'release' ? [] : [id];
    const rows: unknown = await other.dataSource.query(OLDER[statement], values);
    // UPDATE … RETURNING: rows and how many.
    return ((rows as unknown[])[0] ?? []) as unknown[];
  }

  test('what that one writes is seen as states', async () => {
    const id = randomUUID();
    await older('claim', id);
    expect(await stateOf(id)).toBe('active');
    await older('rest', id);
    const { state, state_since: since, idle_since: idleSince } = (await rowOf(id)) ?? {};
    expect([state, since]).toEqual(['idle', idleSince]);
    await older('wake', id);
    expect(await stateOf(id)).toBe('active');
    await older('doom', id);
    expect(await rowOf(id)).toMatchObject({ state: 'deleting', owner: null });
    await older('take', id);
    expect(await rowOf(id)).toMatchObject({ state: 'deleting', owner: 'older' });
    expect(await one.take()).toEqual([]);
    await older('release', id);
    expect(await one.take()).toEqual([id]);
  });

  test('a sandbox that its pool keeps ready is left to it until that is dead', async () => {
    const id = randomUUID();
    await older('keep', id);
    expect(await rowOf(id)).toMatchObject({ state: 'warming', owner: 'older' });
    expect(await one.take()).toEqual([]);
    await older('renew', id);
    expect(await one.take()).toEqual([id]);
    expect(await older('renew', id)).toEqual([]);
  });

  test('that one sees the states as its columns', async () => {
    const id = await one.active();
    expect(await rowOf(id)).toMatchObject({ idle_since: null, doomed_at: null });
    await restSandbox(one.sql, id);
    const idle = await rowOf(id);
    expect(idle).toMatchObject({ idle_since: idle?.['state_since'], doomed_at: null });
    await wakeSandbox(one.sql, id);
    expect(await rowOf(id)).toMatchObject({ idle_since: null, doomed_at: null });
    await markSandboxes(one.sql, [id]);
    expect(await older('wake', id)).toEqual([]);
    await one.take();
    expect(await older('take', id)).toEqual([]);
    await one.sandboxes.release(one.name);
    expect(await older('take', id)).toHaveLength(1);
  });

  test('that one leaves what this one keeps ready alone, and takes it when this one is dead', async () => {
    const id = await one.ready();
    const row = await rowOf(id);
    expect(row?.['reaper']).toBe(`warm ${one.name}`);
    expect(await older('take', id)).toEqual([]);
    expect(await rowOf(id)).toEqual(row);
    await one.sandboxes.renew([id], { name: one.name, seconds: -1 });
    expect(await older('take', id)).toHaveLength(1);
    expect(await rowOf(id)).toMatchObject({ state: 'deleting', owner: 'older' });
    expect(await one.sandboxes.renew([id], one.owner)).toEqual(new Set());
  });
});
