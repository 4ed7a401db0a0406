import { describe, expect, it } from '@jest/globals';
import { httpUrlProblem } from './http-url.js';

describe('addresses', () => {
  it.each([
    'https://a.example',
    'http://a.example:8080/x/y.git?z=1#f',
    'https://a.example/@scope/x',
    'https://[2001:db8::1]/x',
    'HTTPS://A.Example:443/a%20b',
    'http://127.0.0.1:4000',
    'http://localhost',
    'https://b\u00fccher.example/x',
  ])('takes %s', (text) => expect(httpUrlProblem(text)).toBeUndefined());

  it.each([
    '',
    'x',
    '//a.example',
    'ftp://a.example',
    'git@a.example:x/y.git',
    'ssh://a.example/x',
    'file:///etc/passwd',
    'javascript:alert(1)',
    'https://user@a.example',
    'https://user:secret@a.example',
    'https://:secret@a.example',
    'https://@a.example',
    'HTTPS://u:p@a.example',
    'https:/u:p@a.example',
    'https:u:p@a.example',
    'https://a.example\\@b.example',
    'https://a.example/x y',
    'https://a.example\n',
    ' https://a.example',
    'https://a.exa\nmple/x',
    'https://a.example/\u0001',
    'https:a.example/x',
    'https:/a.example/x',
    'https:///a.example/x',
    'https://',
    'https://?x',
    'https://*.com/x.git',
    'https://a*.example/x.git',
    'https://a..example/x.git',
    'https://ex%61mple.com/x',
    'https://a.example:99999/x',
    'https://a.example/%E0%A4%A.git',
    'https://a.example/100%.git',
    'https://a.example/x?y=%zz',
    `https://a.example/${'x'.repeat(3_000)}`,
  ])('refuses %.60j', (text) => expect(typeof httpUrlProblem(text)).toBe('string'));
});
