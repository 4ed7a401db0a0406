import { describe, expect, test } from '@jest/globals';
import { formatTraceparent, parseTraceparent } from './tracing.js';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';

describe('a traceparent', () => {
  test.each([
    [`00-${TRACE}-${SPAN}-01`, true],
    [`00-${TRACE}-${SPAN}-00`, false],
    [`00-${TRACE}-${SPAN}-03`, true],
    [` 00-${TRACE}-${SPAN}-01 `, true],
    [`42-${TRACE}-${SPAN}-01-what-comes`, true],
  ])('%s is read', (text, sampled) => {
    expect(parseTraceparent(text)).toEqual({ traceId: TRACE, spanId: SPAN, sampled });
  });

  test.each([
    undefined,
    '',
    [`00-${TRACE}-${SPAN}-01`],
    `ff-${TRACE}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-01-more`,
    `00-${TRACE.toUpperCase()}-${SPAN}-01`,
    `00-${'0'.repeat(32)}-${SPAN}-01`,
    `00-${TRACE}-${'0'.repeat(16)}-01`,
    `00-${TRACE}-${SPAN}`,
  ])('%p is none', (text) => {
    expect(parseTraceparent(text)).toBeUndefined();
  });

  test('is written as it is read', () => {
    const text = `00-${TRACE}-${SPAN}-01`;
    expect(formatTraceparent(parseTraceparent(text)!)).toBe(text);
  });
});
