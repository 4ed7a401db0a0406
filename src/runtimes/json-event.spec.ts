import { describe, expect, it, jest } from '@jest/globals';
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
  ])('that are %s are passed over without parsing them', (_what, line) => {
    const parse = jest.spyOn(JSON, 'parse');
    try {
      expect(parseEvent(line)).toBeUndefined();
      expect(parse).not.toHaveBeenCalled();
    } finally {
      parse.mockRestore();
    }
  });
});
