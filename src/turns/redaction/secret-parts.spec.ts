import { describe, expect, it } from '@jest/globals';
import { partsOfHeader, partsOfSecret } from './redactor.js';

const basic = Buffer.from('someone:correct-horse').toString('base64');

describe('partsOfSecret', () => {
  it.each([
    ['plain-secret-value', []],
    ['two words', []],
    ['Bearer abc.def-ghi', ['abc.def-ghi']],
    [`Basic ${basic}`, [basic, 'someone:correct-horse', 'correct-horse']],
    ['{"Authorization":"Bearer ntn_123456","X":"y"}', ['ntn_123456']],
    ['postgres://user:p%40ssw0rd@db.example/app', ['p%40ssw0rd', 'p@ssw0rd']],
    ['https://db.example:5432/a@b', []],
    ['Basic %%%', ['%%%']],
  ])('finds in %j what is secret on its own', (value, parts) => {
    expect(partsOfSecret(value)).toEqual(parts);
  });
});

describe('partsOfHeader', () => {
  it.each([
    ['token-without-scheme', []],
    ['Custom-Scheme abcdefgh', ['abcdefgh']],
    ['session=abcdefgh; theme="dark-one"', ['abcdefgh', 'dark-one']],
    ['Bearer abcdefgh', ['abcdefgh']],
  ])('finds in %j what is secret on its own', (value, parts) => {
    expect(partsOfHeader(value)).toEqual(parts);
  });
});
