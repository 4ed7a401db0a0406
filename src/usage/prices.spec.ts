import { expect, it } from '@jest/globals';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Prices } from './prices.js';

const MILLION = 1_000_000;
const tokens = (input = 0, output = 0, read = 0, creation = 0) => ({
  input_tokens: input,
  output_tokens: output,
  cache_read_input_tokens: read,
  cache_creation_input_tokens: creation,
});

function withFile<T>(text: string, work: (file: string) => T): T {
  const folder = mkdtempSync(join(tmpdir(), 'prices-'));
  try {
    const file = join(folder, 'prices.json');
    writeFileSync(file, text);
    return work(file);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

it.each([
  ['claude-haiku-4-5-20251001', 'claude-haiku-4-5'],
  ['anthropic/claude-sonnet-4-5', 'claude-sonnet-4-5'],
  ['claude-opus-4-1-20250805', 'claude-opus-4-1'],
  ['claude-opus-4-20250514', 'claude-opus-4'],
  ['gpt-5-2025-08-07', 'gpt-5'],
  ['gpt-5-mini-2025-08-07', 'gpt-5-mini'],
  ['gemini-3-pro-preview', 'gemini-3-pro'],
  ['gemini-2.5-flash-preview-09-2025', 'gemini-2.5-flash'],
  ['gpt-5-pro', undefined],
  ['gpt-50', undefined],
  ['', undefined],
])('%s has the price of %s', (model, name) => {
  expect(Prices.load().nameOf(model)).toBe(name);
});

it('multiplies each kind of token by its price', () => {
  const prices = Prices.load();
  const million = tokens(MILLION, MILLION, MILLION, MILLION);
  expect(prices.costOf('claude-haiku-4-5', million)).toBeCloseTo(1 + 5 + 0.1 + 1.25);
  expect(prices.costOf('gpt-5', tokens(1000, 100, 500))).toBeCloseTo(0.0023125, 9);
  expect(prices.costOf('unheard-of', million)).toBeNull();
  expect(prices.date).toMatch(/^\d{4}-\d\d-\d\d$/);
});

it('come from another file', () => {
  const text = '{"date":"2026-01-01","models":{"own":{"input":2,"output":3}}}';
  const prices = withFile(text, (file) => Prices.load(file));
  expect(prices.costOf('own', tokens(MILLION, MILLION, MILLION))).toBe(7);
  expect(prices.nameOf('gpt-5')).toBeUndefined();
});

it.each(['no JSON', '{}', '{"date":"2026-01-01","models":{"own":{"input":"2","output":3}}}'])(
  'are refused in one line when the file is %s',
  (text) => {
    expect(() => withFile(text, (file) => Prices.load(file))).toThrow(/^PRICES_FILE: [^\n]+$/);
  },
);

it('refuses a device, which may not end', () => {
  expect(() => Prices.load('/dev/zero')).toThrow(
    'PRICES_FILE: cannot be read: /dev/zero is not a regular file',
  );
});
