import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { EventEmitter2 } from '@nestjs/event-emitter';
import type { DataSource } from 'typeorm';
import { loadConfig } from '../../src/config/app-config.js';
import { createDataSource, DatabaseUrl } from '../../src/database/data-source.js';
import { Notifications } from '../../src/database/notifications.js';
import { Sql } from '../../src/database/sql.js';
import { Notifier } from '../../src/event-log/log-notifications.js';
import { LogPartitions } from '../../src/event-log/log-partitions.js';
import { LogKind } from '../../src/event-log/event-log.repository.js';
import { type ClaimedTurn, TurnLeaseRepository } from '../../src/turns/turn-queue.repository.js';
import { type TurnCommit, TurnOutputRepository } from '../../src/turns/turn-output.repository.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';
import { insertWaitingTurn } from '../support/waiting-turn.js';

let database: TestDatabase;
let dataSource: DataSource;
let leases: TurnLeaseRepository;
let output: TurnOutputRepository;

beforeAll(async () => {
  database = await createTestDatabase();
  dataSource = createDataSource({ url: database.url, poolSize: 4 });
  await dataSource.initialize();
  const sql = new Sql(dataSource);
  const silent = new Notifications(new DatabaseUrl(database.url));
  const notifier = new Notifier(new EventEmitter2(), silent);
  leases = new TurnLeaseRepository(sql, notifier);
  output = new TurnOutputRepository(sql, notifier);
  await new LogPartitions(sql, loadConfig({})).ensure();
});
afterAll(async () => {
  await dataSource.destroy();
  await database.drop();
});

const claim = async (owner: string): Promise<ClaimedTurn> => {
  const [turn] = await leases.claim({
    owner,
    driver: 'local',
    host: 'here',
    limit: 1,
    leaseSeconds: 60,
    except: [],
    users: [],
    suspect: true,
  });
  if (!turn) throw new Error('nothing to claim');
  return turn;
};

/** A turn that one worker claimed, and another one after the first one's lease had run out. */
async function takenOver(): Promise<{ first: ClaimedTurn; second: ClaimedTurn }> {
  await insertWaitingTurn(dataSource);
  const first = await claim('first');
  await dataSource.query('UPDATE turns SET lease_expires_at = now() WHERE id = $1', [first.id]);
  return { first, second: await claim('second') };
}

const commitOf = (turn: ClaimedTurn, text: string, seq = turn.commit_seq): TurnCommit => {
  const id = turn.last_log_id + 1 + seq - turn.commit_seq;
  return {
    turnId: turn.id,
    sessionId: turn.session_id,
    turnNumber: turn.turn_number,
    fencing: turn.fencing,
    seq,
    rows: [{ id, turn: turn.turn_number, kind: LogKind.framed, data: text }],
    lastId: id,
    firstOutputId: id,
    position: { offset: 10, stdout: 0, stderr: 0 },
    progress: {},
  };
};

async function logOf(turn: ClaimedTurn): Promise<string[]> {
  const rows: { data: string }[] = await dataSource.query(
    'SELECT data FROM event_log WHERE session_id = $1 ORDER BY id',
    [turn.session_id],
  );
  return rows.map(({ data }) => data);
}

const END = { status: 'completed', exitCode: 0, error: null } as const;

describe('the fencing number', () => {
  it('keeps a worker that lost its lease from writing, though its sequence number is right', async () => {
    const { first, second } = await takenOver();
    expect(second).toMatchObject({ id: first.id, commit_seq: first.commit_seq });
    expect(second.fencing).toBeGreaterThan(first.fencing);

    expect(await output.commit([commitOf(first, 'late')], false)).toEqual(['lost']);
    expect(await output.commit([commitOf(first, 'late')], true)).toEqual(['lost']);
    expect(await output.commit([commitOf(second, 'mine')], false)).toEqual(['committed']);
    expect(await logOf(second)).toEqual(['mine']);
  });

  it('tells apart the writes of a worker that lost a turn and has it again, in one statement', async () => {
    const { first, second } = await takenOver();
    for (const repeated of [false, true]) {
      const seq = repeated ? 1 : 0;
      const both = [commitOf(first, 'late', seq), commitOf(second, 'mine', seq)];
      expect(await output.commit(both, repeated)).toEqual(['lost', 'committed']);
    }
    expect(await output.commit([commitOf(first, 'late'), commitOf(second, 'mine')], true)).toEqual([
      'lost',
      'lost',
    ]);
    expect(
      await output.commit([commitOf(first, 'late'), commitOf(second, 'mine', 1)], true),
    ).toEqual(['lost', 'committed']);
    expect(await logOf(second)).toEqual(['mine', 'mine']);
  });

  it('keeps it from ending the turn', async () => {
    const { first, second } = await takenOver();
    const asOf = (turn: ClaimedTurn) => ({ ...turn, sessionId: turn.session_id });
    expect(await output.end(asOf(first), END)).toBe(false);
    const sessions: unknown = await dataSource.query('SELECT status FROM sessions WHERE id = $1', [
      first.session_id,
    ]);
    expect(sessions).toEqual([{ status: 'running' }]);
    expect(await output.end(asOf(second), END)).toBe(true);
  });
});

describe('the sequence number', () => {
  it('keeps a commit whose answer was lost from being applied twice', async () => {
    const { second } = await takenOver();
    await output.commit([commitOf(second, 'once')], false);
    expect(await output.commit([commitOf(second, 'once')], true)).toEqual(['committed']);
    expect(await output.commit([commitOf(second, 'once')], false)).toEqual(['lost']);
    expect(await logOf(second)).toEqual(['once']);
  });
});

describe('a commit of a turn that another statement has locked', () => {
  /** Commits while another transaction has changed the turn, and again after that has ended. */
  async function commitBehind(
    change: string,
    turn: ClaimedTurn,
    commits: readonly TurnCommit[],
  ): Promise<[meanwhile: unknown, after: unknown]> {
    const other = dataSource.createQueryRunner();
    await other.startTransaction();
    await other.query(change, [turn.id]);
    const meanwhile = await output.commit(commits, false);
    await other.commitTransaction();
    await other.release();
    return [meanwhile, await output.commit(commits, true)];
  }
  const positionOf = async (turn: ClaimedTurn): Promise<unknown> => {
    const [row]: unknown[] = await dataSource.query(
      'SELECT commit_seq::int, spool_offset::int FROM turns WHERE id = $1',
      [turn.id],
    );
    return row;
  };

  it('is applied completely after a renewal of the lease, and other commits at once', async () => {
    const turns = [(await takenOver()).second, (await takenOver()).second];
    for (const turn of turns) {
      const outcome = await commitBehind(
        `UPDATE turns SET lease_expires_at = now() + interval '1 minute' WHERE id = $1`,
        turn,
        turns.map((each) => commitOf(each, 'x', turns.indexOf(turn))),
      );
      const meanwhile = turns.map((each) => (each === turn ? 'locked' : 'committed'));
      expect(outcome).toEqual([meanwhile, ['committed', 'committed']]);
    }
    for (const turn of turns) {
      expect(await logOf(turn)).toEqual(['x', 'x']);
      expect(await positionOf(turn)).toEqual({ commit_seq: 2, spool_offset: 10 });
    }
  });

  it('is not applied at all after a takeover', async () => {
    const turns = [(await takenOver()).second, (await takenOver()).second];
    const [lost, kept] = turns as [ClaimedTurn, ClaimedTurn];
    const outcome = await commitBehind(
      'UPDATE turns SET fencing = fencing + 1 WHERE id = $1',
      lost,
      turns.map((each) => commitOf(each, 'x')),
    );
    expect(outcome).toEqual([
      ['locked', 'committed'],
      ['lost', 'committed'],
    ]);
    expect(await logOf(lost)).toEqual([]);
    expect(await positionOf(lost)).toEqual({ commit_seq: 0, spool_offset: 0 });
    expect(await positionOf(kept)).toEqual({ commit_seq: 1, spool_offset: 10 });
  });
});

describe('a renewal of several leases', () => {
  it('is not kept from one by the lock of another, and waits for short ones', async () => {
    const turns = [(await takenOver()).second, (await takenOver()).second];
    const [locked, free] = turns.map(({ id }) => id) as [string, string];
    const other = dataSource.createQueryRunner();
    await other.startTransaction();
    await other.query('SELECT FROM turns WHERE id = $1 FOR UPDATE', [locked]);
    const renewals = await leases.renew('second', [locked, free], 60, []);
    expect(new Map(renewals.map(({ id, renewed }) => [id, renewed]))).toEqual(
      new Map([
        [locked, false],
        [free, true],
      ]),
    );
    await expect(leases.renewWaiting('second', [locked], 60)).rejects.toMatchObject({
      code: '55P03',
    });
    const waiting = leases.renewWaiting('second', [locked], 60);
    await other.commitTransaction();
    await other.release();
    expect(await waiting).toEqual([locked]);
    expect(await leases.renewWaiting('first', [locked], 60)).toEqual([]);
  });
});
