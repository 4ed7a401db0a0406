import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import type { DataSource } from 'typeorm';
import { loadConfig } from '../../src/config/app-config.js';
import { createDataSource } from '../../src/database/data-source.js';
import { Sql } from '../../src/database/sql.js';
import { type ClaimKey, TurnChanges } from '../../src/files/changes/turn-changes.repository.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';
import { insertWaitingTurn } from '../support/waiting-turn.js';

let database: TestDatabase;
let dataSource: DataSource;
let changes: TurnChanges;
let claim: ClaimKey;

beforeAll(async () => {
  database = await createTestDatabase();
  dataSource = createDataSource({ url: database.url, poolSize: 2 });
  await dataSource.initialize();
  changes = new TurnChanges(new Sql(dataSource), loadConfig({ LOG_RETENTION_DAYS: '3' }));
});
afterAll(async () => {
  await dataSource.destroy();
  await database.drop();
});
beforeEach(async () => {
  await insertWaitingTurn(dataSource);
  const [turn] = await dataSource
    .query(
      `UPDATE turns SET status = 'running', fencing = 2 WHERE status = 'pending'
     RETURNING id, session_id AS "sessionId", turn_number AS "turnNumber"`,
    )
    .then(([rows]: [ClaimKey[]]) => rows);
  if (turn === undefined) throw new Error('there is no turn');
  claim = { ...turn, fencing: 2 };
});

const FILE = { path: 'a', status: 'added', additions: 1, deletions: 0 } as const;
const OF_ONE = { mountPath: 'one', base: null, head: null, files: [FILE], patchBytes: 6 };

async function* pieces(...texts: string[]): AsyncGenerator<Buffer> {
  for (const text of texts) yield Buffer.from(text);
}
const patch = async (): Promise<string> => {
  const parts: Buffer[] = [];
  for await (const part of changes.patchUnscoped(claim, 'one')) parts.push(part);
  return Buffer.concat(parts).toString();
};

describe('the changes of a turn', () => {
  it('are read as they were stored', async () => {
    await changes.keep(claim, OF_ONE, pieces('abc', 'def'));
    expect(await changes.findUnscoped(claim)).toEqual([{ ...OF_ONE, keptBytes: 6 }]);
    expect(await patch()).toBe('abcdef');
  });

  it('are not seen before they are complete, and replace an earlier attempt', async () => {
    const broken = async function* (): AsyncGenerator<Buffer> {
      yield Buffer.from('half');
      throw new Error('the sandbox is gone');
    };
    await expect(changes.keep(claim, OF_ONE, broken())).rejects.toThrow('the sandbox is gone');
    expect(await changes.findUnscoped(claim)).toEqual([]);
    await changes.keep(claim, OF_ONE, pieces('again'));
    expect(await changes.findUnscoped(claim)).toEqual([{ ...OF_ONE, keptBytes: 5 }]);
    expect(await patch()).toBe('again');
  });

  it('are not changed by a worker that has lost the turn', async () => {
    await changes.keep(claim, OF_ONE, pieces('ours'));
    const late = changes.keep({ ...claim, fencing: 1 }, OF_ONE, pieces('theirs'));
    await expect(late).rejects.toThrow('the turn belongs to another worker');
    expect(await patch()).toBe('ours');
    // One that loses it in the middle does not complete what it began.
    const taken = async function* (): AsyncGenerator<Buffer> {
      yield Buffer.from('first');
      await dataSource.query('UPDATE turns SET fencing = 3 WHERE id = $1', [claim.id]);
      yield Buffer.from('second');
    };
    await expect(changes.keep(claim, OF_ONE, taken())).rejects.toThrow('another worker');
    expect(await changes.findUnscoped(claim)).toEqual([]);
  });

  it('end with the log, and with the session', async () => {
    await changes.keep(claim, OF_ONE, pieces('old'));
    const age = (days: number) =>
      dataSource.query(
        `UPDATE turn_changes SET created_at = now() - make_interval(days => $2, mins => -1)
         WHERE session_id = $1`,
        [claim.sessionId, days],
      );
    const stored = async () => [
      (await dataSource.query('SELECT FROM turn_changes WHERE session_id = $1', [claim.sessionId]))
        .length,
      (await dataSource.query('SELECT FROM turn_patches WHERE session_id = $1', [claim.sessionId]))
        .length,
    ];
    await age(3);
    await changes.purge();
    expect(await changes.findUnscoped(claim)).toHaveLength(1);
    await age(4);
    expect(await changes.findUnscoped(claim)).toEqual([]);
    expect(await stored()).toEqual([1, 1]);
    await changes.purge();
    expect(await stored()).toEqual([0, 0]);

    await changes.keep(claim, OF_ONE, pieces('new'));
    await dataSource.query('DELETE FROM sessions WHERE id = $1', [claim.sessionId]);
    await changes.purge();
    expect(await stored()).toEqual([0, 0]);
  });
});
