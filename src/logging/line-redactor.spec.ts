import { describe, expect, test } from '@jest/globals';
import { inWorkContext } from '../common/work-context.js';
import { LineRedactor } from './service-logger.js';

describe('a log line', () => {
  test.each([
    ['a key', 'the key-0123456789 here', 'the [redacted] here'],
    ['a key as JSON writes it', '{"a":"quo\\"ted-0123"}', '{"a":"[redacted]"}'],
    ['a key in a URL', 'postgres://me:p%40ssword-1@host', 'postgres://me:[redacted]@host'],
    ['what came from a URL', 'password p:ssw/rd-22 is wrong', 'password [redacted] is wrong'],
    ['an access token', 'GET /x/ast_0123456789abcdefghij', 'GET /x/[redacted]'],
    ['something short', 'short', 'short'],
    ['the word ast_', 'the prefix ast_ alone', 'the prefix ast_ alone'],
  ])('loses %s, if it is a secret', (_what, line, clean) => {
    const secrets = [
      'key-0123456789',
      'quo"ted-0123',
      'p@ssword-1',
      'p%3Assw%2Frd-22',
      'short',
      undefined,
      '',
    ];
    expect(new LineRedactor(secrets).redact(line)).toBe(clean);
  });

  test('loses the secrets of the work that it is about', () => {
    const redactor = new LineRedactor([]);
    const redact = (text: string): string => text.replaceAll('of-this-session', '[redacted]');
    const line = inWorkContext({ redact }, () => redactor.redact('a secret of-this-session'));
    expect(line).toBe('a secret [redacted]');
    expect(redactor.redact('of-this-session')).toBe('of-this-session');
  });
});
