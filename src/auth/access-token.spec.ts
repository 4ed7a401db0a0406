import { describe, expect, it } from '@jest/globals';
import { generateAccessToken, hashAccessToken, isWellFormedAccessToken } from './access-token.js';

describe('access tokens', () => {
  it('have a fixed shape and are never the same', () => {
    const tokens = Array.from({ length: 200 }, generateAccessToken);
    expect(new Set(tokens).size).toBe(200);
    for (const token of tokens) {
      expect(token).toMatch(/^ast_[0-9A-Za-z]{49}$/);
      expect(isWellFormedAccessToken(token)).toBe(true);
    }
  });

  it('are refused with any one character changed, dropped or added', () => {
    const token = generateAccessToken();
    for (let index = 0; index < token.length; index += 1) {
      const other = token[index] === 'x' ? 'y' : 'x';
      expect(isWellFormedAccessToken(token.slice(0, index) + other + token.slice(index + 1))).toBe(
        false,
      );
      expect(isWellFormedAccessToken(token.slice(0, index) + token.slice(index + 1))).toBe(false);
    }
    expect(isWellFormedAccessToken(`${token}0`)).toBe(false);
    expect(isWellFormedAccessToken('')).toBe(false);
  });

  it('hash to 32 bytes that depend on every character', () => {
    const token = generateAccessToken();
    expect(hashAccessToken(token)).toHaveLength(32);
    expect(hashAccessToken(token).equals(hashAccessToken(generateAccessToken()))).toBe(false);
  });
});
