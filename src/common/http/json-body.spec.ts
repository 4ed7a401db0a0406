import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it, jest } from '@jest/globals';
import { parseJson, UnreadableBody } from './request-body.js';

const detailOf = (text: string) => {
  const value = parseJson(Buffer.from(text));
  return value instanceof UnreadableBody ? value.detail : undefined;
};
const repeated = (item: string, times: number) => Array.from({ length: times }, () => item).join();

describe('JSON bodies', () => {
  it.each([
    ['{"a":[1,2,{"b":"x,{[\\"\\\\"}]}', { a: [1, 2, { b: 'x,{["\\' }] }],
    ['"\\\\"', '\\'],
    ['[]', []],
    ['  3 ', 3],
    ['"ü]}"', 'ü]}'],
  ])('are read: %s', (text, value) => expect(parseJson(Buffer.from(text))).toEqual(value));

  it.each(['{"a":', '"x', '"\\', '{]', ']]]]', ','])('that are none are refused: %s', (text) =>
    expect(detailOf(text)).toBe('Invalid JSON in the request body'),
  );

  it('are bounded in depth and number of values, whatever stands in texts', () => {
    expect(detailOf('['.repeat(64) + ']'.repeat(64))).toBeUndefined();
    expect(detailOf('['.repeat(65) + ']'.repeat(65))).toMatch(/nested deeper than 64$/);
    expect(detailOf(`[${repeated('1', 20_000)}]`)).toBeUndefined();
    expect(detailOf(`[${repeated('1', 20_001)}]`)).toMatch(/more than 20000 values$/);
    expect(detailOf(`{${repeated('"k":1', 30_000)}}`)).toMatch(/more than 20000 values$/);
    expect(detailOf(`[${repeated('{}', 15_000)}]`)).toMatch(/more than 20000 values$/);
    expect(detailOf(JSON.stringify(',{[:'.repeat(100_000)))).toBeUndefined();
  });

  it('are measured the same, however long their texts are and wherever escapes stand in them', () => {
    const lengths = [0, 1, 61, 62, 63, 64, 65, 66, 127, 128, 129, 1000];
    for (const before of lengths)
      for (const after of lengths)
        for (const escape of ['"', '\\', '\\"', '"\\', '\\\\', '""'])
          for (const depth of [64, 65]) {
            const text = `${'x'.repeat(before)}${escape}${'y'.repeat(after)}`;
            // Only the brackets after the text count, not those in it.
            const json = `${'['.repeat(depth - 1)}${JSON.stringify(`[[[${text}`)},[]${']'.repeat(depth - 1)}`;
            const detail = detailOf(json);
            if (depth === 64) expect(detail).toBeUndefined();
            else expect(detail).toMatch(/nested deeper than 64$/);
          }
  });

  it('of many keys are refused without parsing them', () => {
    const keys = Array.from({ length: 300_000 }, (_none, index) => `"k${index}":1`);
    const parse = jest.spyOn(JSON, 'parse');
    try {
      expect(detailOf(`{${keys.join()}}`)).toBeDefined();
      expect(parse).not.toHaveBeenCalled();
    } finally {
      parse.mockRestore();
    }
  });

  it('that are one long text of escapes are read in linear time', async () => {
    const body = Buffer.from(JSON.stringify('"\\'.repeat(1_000_000)));
    expect(parseJson(body)).toHaveLength(2_000_000);
    // In quadratic time it takes minutes. The limit of the test only counts once timers have run.
    await delay(1);
  }, 60_000);
});
