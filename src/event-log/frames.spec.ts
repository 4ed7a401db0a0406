import { describe, expect, it } from '@jest/globals';
import { blockAfter, blocksOf, frameRows } from './frames.js';
import { LogKind, type LogRow } from './event-log.repository.js';

const chunk = (data: string, kind: 0 | 1 | 2 = LogKind.stdout) => ({ kind, data });
const stage = chunk('{"stage":"env_file","state":"started"}', LogKind.stage);

/** Every event of some blocks, as a client reads it. */
const eventsOf = (rows: readonly LogRow[]) =>
  blocksOf(rows).flatMap(({ data }) =>
    data
      .toString()
      .split('\n\n')
      .filter((text) => text !== '')
      .map((text) => {
        const [, id, json] = /^id: (\d+)\ndata: (.*)$/.exec(text) ?? [];
        return { line: Number(id), ...(JSON.parse(json ?? '') as { id: number; data?: string }) };
      }),
  );

describe('framed rows', () => {
  it('number events on, and give back each of them', () => {
    const rows = frameRows([stage, chunk('a\n'), chunk('b', LogKind.stderr)], 2, 6);
    expect(rows.map(({ id, kind }) => [id, kind])).toEqual([
      [7, LogKind.stage],
      [9, LogKind.framed],
    ]);
    expect(eventsOf(rows)).toEqual([
      { line: 7, type: 'stage', id: 7, stage: 'env_file', state: 'started' },
      { line: 8, type: 'output', id: 8, stream: 'stdout', data: 'a\n', turn: 2 },
      { line: 9, type: 'output', id: 9, stream: 'stderr', data: 'b', turn: 2 },
    ]);
  });

  it('hold many events, but are bounded', () => {
    const rows = frameRows(
      Array.from({ length: 1000 }, () => chunk('x'.repeat(150))),
      1,
      0,
    );
    expect(rows.length).toBeGreaterThan(4);
    expect(rows.length).toBeLessThan(10);
    expect(Math.max(...rows.map(({ data }) => data.length))).toBeLessThanOrEqual(32 * 1024);
    expect(eventsOf(rows).map(({ id }) => id)).toEqual(
      Array.from({ length: 1000 }, (_, at) => at + 1),
    );
  });

  it('keep whatever text is in the events, and what ends a line for some clients', () => {
    const texts = ['id: 5\n\nid: 6\n', '\u2028\u2029\u0085', '"\\\r\n\t', '😀', ''];
    const rows = frameRows(
      texts.map((text) => chunk(text)),
      1,
      0,
    );
    expect(eventsOf(rows).map(({ data }) => data)).toEqual(texts);
    expect(rows[0]?.data).not.toMatch(/[\u2028\u2029\u0085\r]/);
  });
});

describe('blocks', () => {
  it('are of one turn, and of output or stages alone', () => {
    const rows = [
      ...frameRows([stage, chunk('a')], 1, 0),
      ...frameRows([chunk('b')], 1, 2),
      ...frameRows([stage, stage, chunk('c')], 2, 3),
    ];
    expect(blocksOf(rows)).toMatchObject([
      { first: 1, last: 1, turn: 1, isOutput: false },
      { first: 2, last: 3, turn: 1, isOutput: true },
      { first: 4, last: 5, turn: 2, isOutput: false },
      { first: 6, last: 6, turn: 2, isOutput: true },
    ]);
  });

  it('go on at any event that they hold', () => {
    const [block] = blocksOf(frameRows([chunk('a\n\nid: 9\n'), chunk('b'), chunk('c')], 1, 10));
    if (!block) throw new Error('no block');
    expect(blockAfter(block, 10)).toBe(block);
    for (const [cursor, texts] of [
      [11, ['b', 'c']],
      [12, ['c']],
    ] as const) {
      const rest = blockAfter(block, cursor);
      expect(rest).toMatchObject({ first: cursor + 1, last: 13 });
      const data = [...rest.data.toString().matchAll(/"data":"(.*?)"/g)].map(([, text]) => text);
      expect(data).toEqual(texts);
    }
  });

  it('are made of single chunks as they used to be stored, too', () => {
    const rows: LogRow[] = [
      { id: 3, turn: 1, kind: LogKind.stdout, data: 'a' },
      { id: 8, turn: 1, kind: LogKind.stderr, data: 'b' },
    ];
    expect(eventsOf(rows).map(({ id, data }) => [id, data])).toEqual([
      [3, 'a'],
      [8, 'b'],
    ]);
  });
});
