import { describe, expect, it } from '@jest/globals';
import { mergeMetadata } from './agents.service.js';

describe('metadata merge', () => {
  it.each([
    ['replaces and deletes', { team: 'a', env: 'b' }, { env: 'c', team: '' }, { env: 'c' }],
    ['keeps what is not submitted', { team: 'a' }, { env: 'b' }, { team: 'a', env: 'b' }],
    ['deletes what is not there without a trace', { team: 'a' }, { env: '' }, { team: 'a' }],
    ['changes nothing for an empty payload', { team: 'a' }, {}, { team: 'a' }],
    ['keeps white space', {}, { team: ' ' }, { team: ' ' }],
  ])('%s', (_name, current, submitted, expected) => {
    expect(mergeMetadata(current, submitted)).toEqual(expected);
  });

  it('takes any name for a label', () => {
    const submitted = JSON.parse('{"__proto__":"a","constructor":"b"}') as Record<string, string>;
    expect(JSON.stringify(mergeMetadata({}, submitted))).toBe(
      '{"__proto__":"a","constructor":"b"}',
    );
    expect(mergeMetadata(submitted, JSON.parse('{"__proto__":""}'))).toEqual({ constructor: 'b' });
  });

  it('changes neither input', () => {
    const current = { team: 'a' };
    const submitted = { team: '' };
    mergeMetadata(current, submitted);
    expect([current, submitted]).toEqual([{ team: 'a' }, { team: '' }]);
  });
});
