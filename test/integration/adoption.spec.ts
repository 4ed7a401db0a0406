import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { EventEmitter2 } from '@nestjs/event-emitter';
import type { DataSource } from 'typeorm';
import { createDataSource } from '../../src/database/data-source.js';
import { DatabaseUrl } from '../../src/database/database-url.js';
import { Notifications } from '../../src/database/notifications.js';
import { Sql } from '../../src/database/sql.js';
import { Doorbell } from '../../src/event-log/doorbell.js';
import { SandboxesRepository } from '../../src/runner/sandboxes.repository.js';
import { WarmSandboxesRepository } from '../../src/runner/warm/warm-sandboxes.repository.js';
import { type ClaimedTurn, TurnLeaseRepository } from '../../src/sessions/turn-lease.repository.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';
import { insertWaitingTurn } from '../support/waiting-turn.js';

const PLACE = { driver: 'local', host: 'here' };
const LEASE_SECONDS = 60;

let database: TestDatabase;
let dataSource: DataSource;
let leases: TurnLeaseRepository;
let sandboxes: SandboxesRepository;
let warm: WarmSandboxesRepository;

beforeAll(async () => {
  database = await createTestDatabase();
  dataSource = createDataSource({ url: database.url, poolSize: 8 });
  await dataSource.initialize();
  const sql = new Sql(dataSource);
  const silent = new Notifications(new DatabaseUrl(database.url));
  leases = new TurnLeaseRepository(sql, new Doorbell(new EventEmitter2(), silent));
  sandboxes = new SandboxesRepository(sql);
  warm = new WarmSandboxesRepository(sql);
});
afterAll(async () => {
  await dataSource.destroy();
  await database.drop();
});

/** The first turn of a new session, claimed. */
async function claimedTurn(): Promise<ClaimedTurn> {
  await insertWaitingTurn(dataSource);
  const [turn] = await leases.claim({
    ...PLACE,
    owner: 'worker',
    limit: 1,
    leaseSeconds: LEASE_SECONDS,
    busyWith: [],
  });
  if (!turn) throw new Error('nothing to claim');
  return turn;
}

async function ready(keeper: string, seconds = LEASE_SECONDS): Promise<string> {
  const id = randomUUID();
  await warm.record(id, PLACE, keeper, seconds);
  return id;
}

const reaped = async (): Promise<string[]> =>
  (await sandboxes.takeDoomed(PLACE, randomUUID(), LEASE_SECONDS)).map(
    ({ sandboxId }) => sandboxId,
  );

describe('a sandbox that is kept ready', () => {
  it('becomes one session’s, however many want it at the same time', async () => {
    const keeper = randomUUID();
    const id = await ready(keeper);
    const turns = [await claimedTurn(), await claimedTurn(), await claimedTurn()];
    const adopted = await Promise.all(turns.map((turn) => warm.adopt(turn, id, keeper)));
    expect(adopted.filter(Boolean)).toHaveLength(1);
    const owner = turns[adopted.indexOf(true)]!;
    // Whoever did not hear the answer asks again.
    expect(await warm.adopt(owner, id, keeper)).toBe(true);
    expect(await sandboxes.known([id, owner.session_id])).toEqual(new Set([id]));
    expect(await warm.renew(keeper, [id], LEASE_SECONDS)).toEqual(new Set());
    expect(await reaped()).not.toContain(id);
  });

  it('is not for a turn that was taken over, nor for a session that has one already', async () => {
    const keeper = randomUUID();
    const [one, other] = [await ready(keeper), await ready(keeper)];
    const turn = await claimedTurn();
    expect(await warm.adopt({ ...turn, fencing: turn.fencing - 1 }, one, keeper)).toBe(false);
    expect(await warm.adopt(turn, one, keeper)).toBe(true);
    expect(await warm.adopt(turn, other, keeper)).toBe(false);
    expect(await warm.renew(keeper, [one, other], LEASE_SECONDS)).toEqual(new Set([other]));
  });

  it('is not for a session that was given up', async () => {
    const keeper = randomUUID();
    const id = await ready(keeper);
    const turn = await claimedTurn();
    await dataSource.query('UPDATE sandboxes SET doomed_at = now() WHERE session_id = $1', [
      turn.session_id,
    ]);
    expect(await warm.adopt(turn, id, keeper)).toBe(false);
  });

  it('is left to its keeper while that lives, and reaped when it does not', async () => {
    const keeper = randomUUID();
    const [alive, dead] = [await ready(keeper), await ready(keeper, -1)];
    expect(await warm.adopt(await claimedTurn(), dead, keeper)).toBe(false);
    const listed = (await sandboxes.doomed(PLACE)).map(({ sandboxId }) => sandboxId);
    expect(listed).toContain(dead);
    expect(listed).not.toContain(alive);
    const taken = await reaped();
    expect(taken).toContain(dead);
    expect(taken).not.toContain(alive);
    expect(await warm.renew(keeper, [alive, dead], LEASE_SECONDS)).toEqual(new Set([alive]));
    await warm.release(keeper);
    expect(await reaped()).toContain(alive);
    expect(await warm.adopt(await claimedTurn(), alive, keeper)).toBe(false);
  });
});
