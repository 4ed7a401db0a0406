import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { EventEmitter2 } from '@nestjs/event-emitter';
import type { DataSource } from 'typeorm';
import { createDataSource, DatabaseUrl } from '../../src/database/data-source.js';
import { Notifications } from '../../src/database/notifications.js';
import { Sql } from '../../src/database/sql.js';
import { Notifier } from '../../src/event-log/log-notifications.js';
import {
  type ClaimedTurn,
  type ClaimRequest,
  TurnLeaseRepository,
} from '../../src/turns/turn-queue.repository.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';
import { insertUserWithAgent, insertWaitingTurns } from '../support/waiting-turn.js';

const SLOTS = 8;
const MOST = (SLOTS * 3) / 4;

let database: TestDatabase;
let dataSource: DataSource;
let leases: TurnLeaseRepository;

beforeAll(async () => {
  database = await createTestDatabase();
  dataSource = createDataSource({ url: database.url, poolSize: 4 });
  await dataSource.initialize();
  const silent = new Notifications(new DatabaseUrl(database.url));
  leases = new TurnLeaseRepository(new Sql(dataSource), new Notifier(new EventEmitter2(), silent));
});
afterEach(() => dataSource.query('DELETE FROM sessions'));
afterAll(async () => {
  await dataSource.destroy();
  await database.drop();
});

/** A worker of {@link SLOTS} slots. */
class Worker {
  running: ClaimedTurn[] = [];
  readonly owner = randomUUID();

  request(suspect: boolean): ClaimRequest {
    return {
      owner: this.owner,
      driver: 'local',
      host: 'here',
      limit: SLOTS - this.running.length,
      leaseSeconds: 60,
      except: this.running.map(({ id }) => id),
      users: this.running.map(({ user_id: user }) => user),
      suspect,
    };
  }

  async fill(suspect = true): Promise<ClaimedTurn[]> {
    const turns = await leases.claim(this.request(suspect));
    this.running.push(...turns);
    return turns;
  }

  /** Ends the oldest turn of a user. */
  async end(user: string): Promise<void> {
    const at = this.running.findIndex(({ user_id: of }) => of === user);
    const [turn] = this.running.splice(at, 1);
    await dataSource.query(`DELETE FROM sessions WHERE id = $1`, [turn?.session_id]);
  }

  of(user: string): number {
    return this.running.filter(({ user_id: of }) => of === user).length;
  }
}

const userWith = async (turns: number): Promise<string> => {
  const user = await insertUserWithAgent(dataSource);
  await insertWaitingTurns(dataSource, user, turns);
  return user.id;
};

describe('claims', () => {
  it('give a lone user every slot, oldest turn first', async () => {
    const user = await insertUserWithAgent(dataSource);
    const waiting = await insertWaitingTurns(dataSource, user, SLOTS + 4);
    const worker = new Worker();
    await worker.fill();
    expect(worker.running.map(({ session_id: id }) => id).toSorted()).toEqual(
      waiting.slice(0, SLOTS).toSorted(),
    );
  });

  it('share the slots between those who wait, whoever came first', async () => {
    const first = await userWith(50);
    const second = await userWith(50);
    const worker = new Worker();
    await worker.fill();
    expect([worker.of(first), worker.of(second)]).toEqual([SLOTS / 2, SLOTS / 2]);
  });

  it('give the next free slots to the one who waits when another one has them all', async () => {
    const greedy = await userWith(50);
    const worker = new Worker();
    await worker.fill();
    expect(worker.of(greedy)).toBe(SLOTS);
    const late = await userWith(2);
    for (const expected of [1, 2]) {
      await worker.end(greedy);
      await worker.fill();
      expect(worker.of(late)).toBe(expected);
    }
  });

  it('never let a user come to more than three quarters while another one waits', async () => {
    const greedy = await userWith(200);
    const others = [await userWith(3), await userWith(30), await userWith(7)];
    const worker = new Worker();
    for (let round = 0; round < 60; round += 1) {
      const claimed = await worker.fill();
      const [{ waiting }] = (await dataSource.query(
        `SELECT count(*)::int AS waiting FROM sessions WHERE status = 'pending' AND user_id <> $1`,
        [greedy],
      )) as [{ waiting: number }];
      if (waiting > 0 && claimed.some(({ user_id: of }) => of === greedy)) {
        expect(worker.of(greedy)).toBeLessThanOrEqual(MOST);
      }
      const ended = worker.running[round % worker.running.length];
      await worker.end(ended?.user_id ?? greedy);
    }
    expect(worker.of(others[0] ?? '')).toBe(0);
  });

  it('find everybody behind a backlog, in few steps each', async () => {
    const greedy = await insertUserWithAgent(dataSource);
    await insertWaitingTurns(dataSource, greedy, 10_000);
    const late = await Promise.all(Array.from({ length: 20 }, () => userWith(1)));
    const worker = new Worker();
    await worker.fill();
    expect(worker.of(greedy.id)).toBeLessThanOrEqual(1);
    for (let round = 0; round < 40; round += 1) {
      const ended = worker.running[0]?.user_id ?? '';
      await worker.end(ended);
      await worker.fill();
    }
    const [{ left }] = (await dataSource.query(
      `SELECT count(*)::int AS left FROM sessions WHERE status = 'pending' AND user_id = ANY ($1)`,
      [late],
    )) as [{ left: number }];
    expect(left).toBe(0);
  });

  it('count those without progress, and not those that were handed over or lost in health', async () => {
    await userWith(1);
    const claimAgain = async (): Promise<ClaimedTurn> => {
      await dataSource.query(`UPDATE turns SET lease_expires_at = now()`);
      const [turn] = await new Worker().fill();
      if (!turn) throw new Error('nothing to claim');
      return turn;
    };
    expect(await claimAgain()).toMatchObject({ claims: 1 });
    const second = await claimAgain();
    expect(second).toMatchObject({ claims: 2 });
    const [row]: { lease_owner: string }[] = await dataSource.query(
      'SELECT lease_owner FROM turns',
    );
    await leases.release(row?.lease_owner ?? '', [second.id]);
    expect(await claimAgain()).toMatchObject({ claims: 2 });
    await leases.uncount([second.id]);
    expect(await claimAgain()).toMatchObject({ claims: 2 });
    expect(await claimAgain()).toMatchObject({ claims: 3 });
    await dataSource.query('UPDATE turns SET spool_offset = 10');
    expect(await claimAgain()).toMatchObject({ claims: 1 });
    expect(await claimAgain()).toMatchObject({ claims: 2 });
  });

  it('take abandoned turns before new ones, even if those have waited longer', async () => {
    await userWith(1);
    const [left] = await new Worker().fill();
    await dataSource.query(`UPDATE turns SET lease_expires_at = now()`);
    const greedy = await insertUserWithAgent(dataSource);
    await insertWaitingTurns(dataSource, greedy, 3 * SLOTS);
    await dataSource.query(`UPDATE turns SET created_at = created_at - interval '1 hour'
      WHERE status = 'pending'`);
    const busy = new Worker();
    // The user of the abandoned turn holds slots already, the other one none.
    busy.running = Array.from({ length: SLOTS - 1 }, () => ({
      ...left,
      id: randomUUID(),
    })) as ClaimedTurn[];
    expect(await leases.claimable(busy.request(true))).toEqual([left?.id]);
    expect(await busy.fill()).toMatchObject([{ id: left?.id }]);
  });

  it('count what was left and is taken again as a slot of its user', async () => {
    const user = await insertUserWithAgent(dataSource);
    await insertWaitingTurns(dataSource, user, 1);
    const [left] = await new Worker().fill();
    await dataSource.query(`UPDATE turns SET lease_expires_at = now()`);
    await insertWaitingTurns(dataSource, user, 2);
    await dataSource.query(`UPDATE turns SET created_at = created_at - interval '1 hour'
      WHERE status = 'pending'`);
    const other = await userWith(1);
    const busy = new Worker();
    busy.running = Array.from({ length: SLOTS - 2 }, () => ({
      id: randomUUID(),
      user_id: randomUUID(),
    })) as ClaimedTurn[];
    const users = (await busy.fill()).map((turn) => turn.user_id);
    expect(users.toSorted()).toEqual([user.id, other].toSorted());
    expect(busy.running).toContainEqual(expect.objectContaining({ id: left?.id }));
  });

  it('take one turn at a time that got nowhere, so that others do not pay for it', async () => {
    await userWith(3);
    await new Worker().fill();
    const crash = () => dataSource.query(`UPDATE turns SET lease_expires_at = now()`);
    await crash();
    const claims = (turns: readonly ClaimedTurn[]) => turns.map((turn) => turn.claims);
    const second = new Worker();
    const [suspect, ...rest] = await second.fill();
    expect([suspect?.claims, rest]).toEqual([2, []]);
    // Only one suspect at a time. New turns, and turns with progress, are not suspects.
    await userWith(1);
    expect(claims(await second.fill(false))).toEqual([1]);
    await dataSource.query(
      `UPDATE turns SET spool_offset = 10 WHERE id = (
         SELECT id FROM turns WHERE claims = 1 AND lease_expires_at <= now() LIMIT 1)`,
    );
    expect(claims(await second.fill(false))).toEqual([1]);
    expect(claims(await second.fill(false))).toEqual([]);
    // The suspect is claimed again, and another worker may have one as well.
    await dataSource.query(`UPDATE turns SET lease_expires_at = now() WHERE id = $1`, [
      suspect?.id,
    ]);
    expect(claims(await new Worker().fill())).toEqual([3]);
    expect(claims(await new Worker().fill())).toEqual([2]);
  });

  it('do not count once a turn was held for long enough', async () => {
    await userWith(2);
    const worker = new Worker();
    const turns = await worker.fill();
    const ids = turns.map(({ id }) => id);
    const renewed = await leases.renew(worker.owner, ids, 60, ids.slice(0, 1));
    expect(renewed.map(({ renewed: done }) => done)).toEqual([true, true]);
    await dataSource.query(`UPDATE turns SET lease_expires_at = now()`);
    // So the other one is the only suspect.
    const again = await new Worker().fill();
    expect(again.find(({ id }) => id === ids[0])).toMatchObject({ claims: 1 });
    expect(again.find(({ id }) => id === ids[1])).toMatchObject({ claims: 2 });
  });
});
