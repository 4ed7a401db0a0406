import { describe, expect, it } from '@jest/globals';
import { type EventLogRepository, type LogRow, LogKind } from './event-log.repository.js';
import { TailMemory } from './log-tail.js';
import { SessionFeed } from './session-feed.js';

const row = (id: number): LogRow => ({ id, turn: 1, kind: LogKind.stdout, data: `${id}` });

/** A log in memory that cuts pages as the database does, and counts how often it is read. */
function fakeLog() {
  const rows: LogRow[] = [];
  let reads = 0;
  const log = {
    readAfterUnscoped: async (
      _id: string,
      cursor: number,
      limit: { rows: number; bytes: number },
    ) => {
      reads += 1;
      await Promise.resolve();
      let before = 0;
      return rows
        .filter(({ id }) => id > cursor)
        .slice(0, limit.rows)
        .filter(({ data }) => {
          const fits = before < limit.bytes;
          before += Buffer.byteLength(data);
          return fits;
        });
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
    feed.grown();
    const all = await Promise.all(Array.from({ length: 50 }, () => idsOf(feed, 0)));
    expect(all.every((ids) => ids.join() === '5,6')).toBe(true);
    expect(reads()).toBe(before + 1);
  });

  it('reads all that other processes wrote, however many bytes its characters have', async () => {
    const { rows, log } = fakeLog();
    const feed = new SessionFeed('s', log, new TailMemory());
    expect(await idsOf(feed, 0)).toEqual([]);
    for (let id = 1; id <= 30; id += 1) rows.push({ ...row(id), data: '\u{4E16}'.repeat(10_000) });
    feed.grown();
    const seen: number[] = [];
    for (let cursor = 0; ; cursor = seen.at(-1) ?? 0) {
      const ids = await idsOf(feed, cursor);
      if (ids.length === 0) break;
      seen.push(...ids);
    }
    expect(seen).toEqual(rows.map(({ id }) => id));
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
    feed.grown();
    expect(await reading).toEqual([1]);
  });

  it('gives its memory back though a read is under way when the last reader leaves', async () => {
    const memory = new TailMemory();
    const { rows, log } = fakeLog();
    const caughtUp = new SessionFeed('s', log, memory);
    expect(await idsOf(caughtUp, 0)).toEqual([]);
    rows.push(row(1), row(2));
    caughtUp.grown();
    const reading = idsOf(caughtUp, 0);
    caughtUp.close();
    expect(await reading).toEqual([]);

    const written = new SessionFeed('s', log, memory);
    const first = idsOf(written, 2);
    written.close();
    await first;
    written.committed(2, [row(3)]);
    expect(memory.bytes).toBe(0);
  });

  it('reads again after a change of state only where the log is known to go on', async () => {
    const { rows, log, reads } = fakeLog();
    const feed = new SessionFeed('s', log, new TailMemory());
    expect(await idsOf(feed, 0)).toEqual([]);
    const before = reads();
    feed.changed();
    feed.expect(0);
    expect(await idsOf(feed, 0)).toEqual([]);
    expect(reads()).toBe(before);
    rows.push(row(1));
    feed.changed();
    feed.expect(1);
    expect(await idsOf(feed, 0)).toEqual([1]);
  });
});
