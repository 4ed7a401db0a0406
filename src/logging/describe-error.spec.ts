import { expect, test } from '@jest/globals';
import { describeError } from './service-logger.js';

test('of an error, its kind, message, code and stack with its causes are logged, and nothing else', () => {
  const cause = new TypeError('the cause');
  const error = Object.assign(new RangeError('what happened', { cause }), {
    code: 'CODE',
    parameters: ['a prompt'],
    query: 'INSERT',
  });
  const described = describeError(error);
  expect(Object.keys(described).sort()).toEqual(['code', 'message', 'stack', 'type']);
  expect(described).toMatchObject({ type: 'RangeError', message: 'what happened', code: 'CODE' });
  expect(described.stack).toMatch(
    /^RangeError: what happened\n[^]*\ncaused by: TypeError: the cause/,
  );
  expect(describeError('text')).toEqual({ type: 'string', message: 'text' });
});
