import { describe, expect, it } from '@jest/globals';
import { readRequestHost } from './http-head.js';

const read = (text: string) => readRequestHost(Buffer.from(text, 'latin1'));

describe('readRequestHost', () => {
  it.each([
    ['GET / HTTP/1.1\r\nHost: a.example\r\n\r\n', 'a.example'],
    ['GET / HTTP/1.1\r\nAccept: */*\r\nhOsT:a.example:80  \r\n\r\nbody: x', 'a.example'],
    ['OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n', 'a.example'],
    ['GET http://A.example:80/x HTTP/1.1\r\nHost: a.example\r\n\r\n', 'a.example'],
    ['POST / HTTP/1.0\r\nHost: a.example\r\nX:\r\n\r\n', 'a.example'],
  ])('reads %j', (text, host) => {
    expect(read(text)).toEqual({ state: 'named', host });
  });

  it('waits for the end of the head, however it is cut', () => {
    const text = 'GET /path HTTP/1.1\r\nHost: a.example\r\n\r\n';
    for (let length = 0; length < text.length; length += 1) {
      expect([length, read(text.slice(0, length)).state]).toEqual([length, 'incomplete']);
    }
    expect(read(text).state).toBe('named');
  });

  it.each([
    ['\x16\x03\x01\x02\x00', 'not HTTP'],
    ['SSH-2.0-x\r\n', 'not HTTP'],
    ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'not HTTP'],
    ['GET /\r\n\r\n', 'not HTTP'],
    ['GET / HTTP/1.1\n\nHost: a\r\n\r\n', 'not HTTP'],
    ['CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n', 'proxy'],
    ['GET / HTTP/1.1\r\n\r\n', 'no Host'],
    ['GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n', 'several'],
    ['GET / HTTP/1.1\r\nHost : a\r\n\r\n', 'malformed'],
    ['GET / HTTP/1.1\r\nX: y\r\n Host: a\r\n\r\n', 'malformed'],
    ['GET / HTTP/1.1\r\nX: y\nHost: b\r\nHost: a\r\n\r\n', 'malformed'],
    ['GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n', 'target'],
    ['GET http://a.example@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n', 'target'],
    ['GET http://a.example\\b/ HTTP/1.1\r\nHost: a.example\r\n\r\n', 'target'],
    ['GET //b HTTP/1.1 \r\nHost: a.example\r\n\r\n', 'not HTTP'],
  ])('finds no host in %j: %s', (text, why) => {
    expect(read(text)).toEqual({ state: 'unnamed', why: expect.stringContaining(why) });
  });
});
