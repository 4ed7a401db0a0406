import { describe, expect, test } from '@jest/globals';
import { isolate } from './database-errors.js';

const permanent = (): Error => Object.assign(new Error('no'), { code: '22P05', severity: 'ERROR' });
const transient = (): Error => Object.assign(new Error('no'), { code: '40P01', severity: 'ERROR' });

/** A statement that fails with some items and remembers which it was carried out for. */
function statement(isGuilty: (item: number) => boolean, error = permanent) {
  const done: number[] = [];
  let runs = 0;
  const run = async (items: readonly number[]): Promise<number[]> => {
    runs += 1;
    await Promise.resolve();
    if (items.some(isGuilty)) throw error();
    done.push(...items);
    return items.map((item) => item * 10);
  };
  return { run, done, runs: () => runs };
}

const ITEMS = Array.from({ length: 16 }, (_, at) => at);

describe('isolate', () => {
  test('runs once where nothing fails', async () => {
    const { run, runs } = statement(() => false);
    expect(await isolate(ITEMS, run, () => [])).toEqual(ITEMS.map((item) => item * 10));
    expect(runs()).toBe(1);
  });

  test.each([[[0]], [[15]], [[3, 4]], [[0, 7, 8, 15]], [ITEMS]])(
    'does everything but %p, once',
    async (guilty) => {
      const { run, done, runs } = statement((item) => guilty.includes(item));
      const refused: number[] = [];
      const results = await isolate(ITEMS, run, (item) => {
        refused.push(item);
        return [-1];
      });
      expect(refused).toEqual(guilty);
      expect(done).toEqual(ITEMS.filter((item) => !guilty.includes(item)));
      expect(results).toEqual(ITEMS.map((item) => (guilty.includes(item) ? -1 : item * 10)));
      expect(runs()).toBeLessThanOrEqual(2 * ITEMS.length - 1);
    },
  );

  test('finds one among many in few runs', async () => {
    const { run, runs } = statement((item) => item === 5);
    await isolate(ITEMS, run, () => []);
    expect(runs()).toBe(1 + 2 * Math.log2(ITEMS.length));
  });

  test('blames nobody for what passes', async () => {
    const { run, runs } = statement((item) => item === 5, transient);
    await expect(isolate(ITEMS, run, () => [])).rejects.toMatchObject({ code: '40P01' });
    expect(runs()).toBe(1);
  });

  const missingTable = (): Error => Object.assign(permanent(), { code: '42P01' });
  test.each([
    ['all of several items, alike', ITEMS, () => true, permanent, false],
    ['all but one', ITEMS, (item: number) => item !== 7, permanent, true],
    ['a lone item', [3], () => true, permanent, true],
    ['one, by an error of the schema', ITEMS, (item: number) => item === 7, missingTable, false],
    ['all, by an error of this process', ITEMS, () => true, () => new Error(), true],
  ])(
    'reports whether the item causes the error: %s',
    async (...[, items, guilty, error, expected]) => {
      const { run } = statement(guilty, error);
      const said = new Set<boolean>();
      await isolate(items, run, (_item, _error, isAtFault) => {
        said.add(isAtFault);
        return [];
      });
      expect(said).toEqual(new Set([expected]));
    },
  );

  test('does not run for nothing', async () => {
    const { run, runs } = statement(() => true);
    expect(await isolate([], run, () => [])).toEqual([]);
    expect(runs()).toBe(0);
  });
});
