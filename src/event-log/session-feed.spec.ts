import { describe, expect, it } from '@jest/globals';
import type { EventLogRepository } from './event-log.repository.js';
import { type LogRow, LogKind } from './log-row.js';
import { TailMemory } from './log-tail.js';
import { SessionFeed } from './session-feed.js';

const row = (id: number): LogRow => ({ id, turn: 1, kind: LogKind.stdout, data: `${id}` });

/** A log in memory that counts how often it is read. */
function fakeLog() {
  const rows: LogRow[] = [];
  let reads = 0;
  const log = {
    readAfterUnscoped: async (_id: string, cursor: number, limit: { rows: number }) => {
      reads += 1;
      await Promise.resolve();
      return rows.filter(({ id }) => id > cursor).slice(0, limit.rows);
    },
  } as unknown as EventLogRepository;
  return { rows, log, reads: () => reads };
}

const idsOf = async (feed: SessionFeed, cursor: number) =>
  (await feed.read(cursor)).flatMap(({ data }) =>
    [...data.toString().matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id)),
  );

describe('SessionFeed', () => {
  it('reads the past from the database and the present from memory', async () => {
    const { rows, log, reads } = fakeLog();
    rows.push(row(1), row(2));
    const feed = new SessionFeed('s', log, new TailMemory());
    expect(await idsOf(feed, 0)).toEqual([1, 2]);
    expect(await idsOf(feed, 2)).toEqual([]);
    const before = reads();
    rows.push(row(3));
    feed.committed(2, [row(3)]);
    expect(await idsOf(feed, 2)).toEqual([3]);
    expect(await idsOf(feed, 3)).toEqual([]);
    expect(reads()).toBe(before);
  });

  it('reads rows of other processes once for all streams', async () => {
    const { rows, log, reads } = fakeLog();
    const feed = new SessionFeed('s', log, new TailMemory());
    expect(await idsOf(feed, 0)).toEqual([]);
    const before = reads();
    rows.push(row(5), row(6));
    feed.rang();
    const all = await Promise.all(Array.from({ length: 50 }, () => idsOf(feed, 0)));
    expect(all.every((ids) => ids.join() === '5,6')).toBe(true);
    expect(reads()).toBe(before + 1);
  });

  it('does not skip rows that it was not told of before own ones', async () => {
    const { rows, log } = fakeLog();
    const feed = new SessionFeed('s', log, new TailMemory());
    expect(await idsOf(feed, 0)).toEqual([]);
    rows.push(row(1), row(2), row(3));
    feed.committed(2, [row(3)]);
    expect(await idsOf(feed, 0)).toEqual([1, 2, 3]);
  });

  it('sees what arrives while it reads the database in vain', async () => {
    const { rows, log } = fakeLog();
    const feed = new SessionFeed('s', log, new TailMemory());
    const reading = idsOf(feed, 0);
    rows.push(row(1));
    feed.rang();
    expect(await reading).toEqual([1]);
  });
});
