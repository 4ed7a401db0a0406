import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { EventEmitter2 } from '@nestjs/event-emitter';
import type { DataSource } from 'typeorm';
import { createDataSource, DatabaseUrl } from '../../src/database/data-source.js';
import { Notifications } from '../../src/database/notifications.js';
import { Sql } from '../../src/database/sql.js';
import { Notifier } from '../../src/event-log/log-notifications.js';
import { SandboxesRepository } from '../../src/sandboxes/lifecycle/sandboxes.repository.js';
import { markSandboxes } from '../../src/sandboxes/lifecycle/session-sandboxes.js';
import { type ClaimedTurn, TurnLeaseRepository } from '../../src/turns/turn-queue.repository.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';
import { insertWaitingTurn } from '../support/waiting-turn.js';

const PLACE = { driver: 'local', host: 'here' };
const LEASE_SECONDS = 60;

const owner = (name: string) => ({ name, seconds: LEASE_SECONDS });

let database: TestDatabase;
let dataSource: DataSource;
let leases: TurnLeaseRepository;
let sandboxes: SandboxesRepository;
let sql: Sql;

beforeAll(async () => {
  database = await createTestDatabase();
  dataSource = createDataSource({ url: database.url, poolSize: 8 });
  await dataSource.initialize();
  sql = new Sql(dataSource);
  const silent = new Notifications(new DatabaseUrl(database.url));
  leases = new TurnLeaseRepository(sql, new Notifier(new EventEmitter2(), silent));
  sandboxes = new SandboxesRepository(sql);
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
    except: [],
    users: [],
    suspect: true,
  });
  if (!turn) throw new Error('nothing to claim');
  return turn;
}

async function ready(keeper: string, seconds = LEASE_SECONDS): Promise<string> {
  const id = randomUUID();
  await sandboxes.record(id, 'warming', PLACE, { name: keeper, seconds });
  expect(await sandboxes.markReady(id, keeper)).toBe(true);
  return id;
}

const reaped = async (): Promise<string[]> =>
  (await sandboxes.take(PLACE, owner(randomUUID()))).map(({ sandboxId }) => sandboxId);

describe('a sandbox that is kept ready', () => {
  it('is adopted once it is ready, and not before', async () => {
    const keeper = randomUUID();
    const id = randomUUID();
    await sandboxes.record(id, 'warming', PLACE, owner(keeper));
    const turn = await claimedTurn();
    expect(await sandboxes.adopt(turn, id, keeper)).toBe(false);
    expect(await sandboxes.markReady(id, keeper)).toBe(true);
    expect(await sandboxes.adopt(turn, id, keeper)).toBe(true);
  });

  it('becomes one session’s, however many want it at the same time', async () => {
    const keeper = randomUUID();
    const id = await ready(keeper);
    const turns = [await claimedTurn(), await claimedTurn(), await claimedTurn()];
    const adopted = await Promise.all(turns.map((turn) => sandboxes.adopt(turn, id, keeper)));
    expect(adopted.filter(Boolean)).toHaveLength(1);
    const winner = turns[adopted.indexOf(true)]!;
    // Whoever did not hear the answer asks again.
    expect(await sandboxes.adopt(winner, id, keeper)).toBe(true);
    expect(await sandboxes.known([id, winner.session_id])).toEqual(new Set([id]));
    expect(await sandboxes.renew([id], owner(keeper))).toEqual(new Set());
    expect(await reaped()).not.toContain(id);
  });

  it('is not for a turn that was taken over, nor for a session that has one already', async () => {
    const keeper = randomUUID();
    const [one, other] = [await ready(keeper), await ready(keeper)];
    const turn = await claimedTurn();
    expect(await sandboxes.adopt({ ...turn, fencing: turn.fencing - 1 }, one, keeper)).toBe(false);
    expect(await sandboxes.adopt(turn, one, keeper)).toBe(true);
    expect(await sandboxes.adopt(turn, other, keeper)).toBe(false);
    expect(await sandboxes.renew([one, other], owner(keeper))).toEqual(new Set([other]));
  });

  it('is not for a session whose sandbox is marked for deletion', async () => {
    const keeper = randomUUID();
    const id = await ready(keeper);
    const turn = await claimedTurn();
    await markSandboxes(sql, [turn.session_id]);
    expect(await sandboxes.adopt(turn, id, keeper)).toBe(false);
  });

  it('is left to its keeper while that lives, and reaped when it does not', async () => {
    const keeper = randomUUID();
    const [alive, dead] = [await ready(keeper), await ready(keeper, -1)];
    expect(await sandboxes.adopt(await claimedTurn(), dead, keeper)).toBe(false);
    const listed = (await sandboxes.toDelete(PLACE)).map(({ sandboxId }) => sandboxId);
    expect(listed).toContain(dead);
    expect(listed).not.toContain(alive);
    const taken = await reaped();
    expect(taken).toContain(dead);
    expect(taken).not.toContain(alive);
    expect(await sandboxes.renew([alive, dead], owner(keeper))).toEqual(new Set([alive]));
    await sandboxes.release(keeper);
    expect(await reaped()).toContain(alive);
    expect(await sandboxes.adopt(await claimedTurn(), alive, keeper)).toBe(false);
  });
});
