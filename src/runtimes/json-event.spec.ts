import { describe, expect, it } from '@jest/globals';
import { parseEvent } from './runtime-support.js';

describe('events of agent programs', () => {
  it('are objects in JSON, of which each takes one line', () => {
    expect(parseEvent('{"type":"result","usage":{"tokens":[1,2]}}')).toEqual({
      type: 'result',
      usage: { tokens: [1, 2] },
    });
    expect(parseEvent('plain words')).toBeUndefined();
    expect(parseEvent('{"type":')).toBeUndefined();
  });

  it('may hold a text of any length', () => {
    const text = '[{,"'.repeat(500_000);
    expect(parseEvent(JSON.stringify({ text }))).toEqual({ text });
  });

  it.each([
    ['nested too deep', `{"a":${'['.repeat(1_500_000)}${']'.repeat(1_500_000)}}`],
    ['of too many values', `{"a":[${Array.from({ length: 1_000_000 }, () => '{}').join()}]}`],
  ])('that are %s are passed over in a fraction of the time that parsing takes', (_what, line) => {
    const time = (work: () => unknown) => {
      const begun = performance.now();
      work();
      return performance.now() - begun;
    };
    expect(parseEvent(line)).toBeUndefined();
    const parsing = Math.min(...[1, 2].map(() => time(() => JSON.parse(line))));
    const passing = Math.min(...[1, 2, 3].map(() => time(() => parseEvent(line))));
    expect(passing).toBeLessThan(parsing / 4);
  });
});
