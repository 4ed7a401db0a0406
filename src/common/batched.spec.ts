import { describe, expect, test } from '@jest/globals';
import { Batched } from './async.js';

/** Looks up the double of each number, once `open` is called. */
function source(keys: number, queries: number) {
  const queried: number[][] = [];
  const gates: (() => void)[] = [];
  let failing = false;
  const batched = new Batched<number, number>({
    keys,
    queries,
    nameOf: String,
    query: async (some) => {
      queried.push([...some]);
      await new Promise<void>((resolve) => gates.push(resolve));
      if (failing) throw new Error('away');
      return new Map(some.filter((key) => key >= 0).map((key) => [String(key), key * 2]));
    },
  });
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  return {
    batched,
    queried,
    fail: () => (failing = true),
    /** Lets queries continue until none is waiting. */
    open: async () => {
      for (await settle(); gates.length > 0; await settle()) gates.shift()?.();
    },
    settle,
  };
}

describe('Batched', () => {
  test('looks up thousands of keys with few queries, and limits how many run at a time', async () => {
    const { batched, queried, open, settle } = source(500, 2);
    const answers = Promise.all(Array.from({ length: 3_001 }, (_, key) => batched.get(key)));
    await settle();
    expect(queried).toHaveLength(2);
    await open();
    expect(await answers).toEqual(Array.from({ length: 3_001 }, (_, key) => key * 2));
    expect(queried.map(({ length }) => length)).toEqual([500, 500, 500, 500, 500, 500, 1]);
  });

  test('looks up equal keys once, but not again from an earlier query', async () => {
    const { batched, queried, open, settle } = source(10, 1);
    const first = Promise.all([batched.get(1), batched.get(1)]);
    await settle();
    const second = Promise.all([batched.get(1), batched.get(2)]);
    await open();
    expect(await first).toEqual([2, 2]);
    expect(await second).toEqual([2, 4]);
    expect(queried).toEqual([[1], [1, 2]]);
  });

  test('has no value for missing keys, and fails all keys of a failed query', async () => {
    const { batched, open, fail } = source(10, 1);
    const absent = batched.get(-1);
    await open();
    expect(await absent).toBeUndefined();
    fail();
    const failed = Promise.allSettled([batched.get(1), batched.get(2)]);
    await open();
    expect((await failed).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  });
});
