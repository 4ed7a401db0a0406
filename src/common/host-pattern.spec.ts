import { describe, expect, it } from '@jest/globals';
import {
  HostPatternError,
  formatHostPattern,
  hostMatches,
  normalizeHostName,
  parseHostPattern,
} from './host-pattern.js';

describe('normalizeHostName', () => {
  it.each([
    ['Example.COM', 'example.com'],
    ['example.com.', 'example.com'],
    ['bücher.example', 'xn--bcher-kva.example'],
    ['BÜCHER.example', 'xn--bcher-kva.example'],
    ['my_bucket.example', 'my_bucket.example'],
    ['localhost', 'localhost'],
    ['1password.com', '1password.com'],
    ['4.example', '4.example'],
  ])('brings %s to %s', (text, name) => {
    expect(normalizeHostName(text)).toBe(name);
  });

  it.each([
    '',
    '.',
    '..',
    'a..b',
    '.example.com',
    'example.com..',
    '1.2.3.4',
    '1.2.3.4.',
    '127.1',
    '2130706433',
    '0x7f.1',
    '0x7f000001',
    '0x',
    '１２７.0.0.1',
    '::1',
    '[::1]',
    'fe80::1%eth0',
    '-a.example',
    'a-.example',
    'a b.example',
    'a%41.example',
    'exa\0mple.com',
    'user@example.com',
    `${'a'.repeat(64)}.example`,
    `${'a.'.repeat(130)}example`,
  ])('takes %j for no name', (text) => {
    expect(normalizeHostName(text)).toBeUndefined();
  });
});

describe('parseHostPattern', () => {
  it.each([
    ['api.example.com', 'api.example.com'],
    ['*.Example.com.', '*.example.com'],
    ['*.bücher.example', '*.xn--bcher-kva.example'],
  ])('reads %s as %s', (text, canonical) => {
    const pattern = parseHostPattern(text);
    expect(formatHostPattern(pattern)).toBe(canonical);
    expect(parseHostPattern(canonical)).toEqual(pattern);
  });

  it.each([
    ['', 'empty'],
    [' example.com', 'white space'],
    ['https://example.com', 'scheme'],
    ['user@example.com', 'user'],
    ['example.com/path', 'path'],
    ['example.com?q', 'path'],
    ['example.com:443', 'port'],
    ['*', 'unrestricted'],
    ['a.*.com', 'wildcard'],
    ['**.example.com', 'wildcard'],
    ['*example.com', 'wildcard'],
    ['*.*.example.com', 'wildcard'],
    ['10.0.0.1', 'IP address'],
    ['127.1', 'IP address'],
    ['*.0.0.1', 'IP address'],
    ['[::1]', 'IP address'],
    ['::1', 'IP address'],
    ['a..b', 'not a valid host name'],
    ['-x.example', 'not a valid host name'],
    ['*.', 'not a valid host name'],
  ])('refuses %j and says why: %s', (text, why) => {
    expect(() => parseHostPattern(text)).toThrow(HostPatternError);
    expect(() => parseHostPattern(text)).toThrow(why);
    expect(() => parseHostPattern(text)).toThrow(JSON.stringify(text));
  });

  it('does not repeat an over-long text in full', () => {
    expect(() => parseHostPattern(`${'x'.repeat(5000)}/`)).toThrow(/^.{1,150}$/);
  });
});

describe('hostMatches', () => {
  const patterns = ['api.example.com', '*.wild.example'].map(parseHostPattern);

  it.each(['api.example.com', 'API.Example.com.', 'a.wild.example', 'a.b.wild.example'])(
    'allows %s',
    (host) => {
      expect(hostMatches(patterns, host)).toBe(true);
    },
  );

  it.each([
    'example.com',
    'x.api.example.com',
    'wild.example',
    'notwild.example',
    'a.wild.example.evil.example',
    'api.example.com.evil.example',
    '.wild.example',
    '127.0.0.1',
    '',
  ])('does not allow %j', (host) => {
    expect(hostMatches(patterns, host)).toBe(false);
  });
});
