/** Cases that do not disturb each other. They begin in their order when the first result is awaited. */
export interface Cases {
  /** Waits for the result of one case. */
  result(index: number): Promise<void>;
  /** Waits until nothing runs any more. */
  ended(): Promise<void>;
}

/** @param atOnce how many cases run at the same time; more than one only if each mostly starts programs */
export function someAtOnce<T>(
  cases: readonly T[],
  atOnce: number,
  run: (item: T, index: number) => Promise<void>,
): Cases {
  const results = cases.map(() => Promise.withResolvers<void>());
  // A case may fail before its result is awaited.
  for (const { promise } of results) promise.catch(() => undefined);
  const left = [...cases.entries()];
  const runSome = async (): Promise<void> => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) {
      const [index, item] = next;
      const { resolve, reject } = results[index] as PromiseWithResolvers<void>;
      await run(item, index).then(resolve, reject);
    }
  };
  let running: Promise<unknown> | undefined;
  return {
    result: async (index) => {
      running ??= Promise.all(Array.from({ length: atOnce }, runSome));
      await results[index]?.promise;
    },
    ended: async () => {
      await running;
    },
  };
}
