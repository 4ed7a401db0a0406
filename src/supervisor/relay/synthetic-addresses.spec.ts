import { describe, expect, it } from '@jest/globals';
import { SyntheticAddresses } from './binding.js';

describe('SyntheticAddresses', () => {
  it('forgets the least recently used name and does not reuse its address', () => {
    const table = new SyntheticAddresses(2);
    const a = table.addressOf('a');
    const b = table.addressOf('b');
    expect(table.nameOf(a)).toBe('a');
    const c = table.addressOf('c');
    expect(table.nameOf(b)).toBeUndefined();
    expect(table.nameOf(a)).toBe('a');
    expect(table.nameOf(c)).toBe('c');
    expect(new Set([a, b, c, table.addressOf('b')]).size).toBe(4);
  });

  it('never forgets a pinned name, nor counts it', () => {
    const table = new SyntheticAddresses(1);
    const pinned = table.pin('gateway');
    for (let i = 0; i < 10; i += 1) table.addressOf(`n${String(i)}`);
    expect(table.nameOf(pinned)).toBe('gateway');
    expect(table.addressOf('n9')).toBe('127.64.0.11');
  });

  it('stays within 127.64.0.0/10 and skips addresses in use when it comes round', () => {
    const table = new SyntheticAddresses(1);
    const pinned = table.pin('gateway');
    let last = '';
    for (let i = 1; i < (1 << 22) - 2; i += 1) last = table.addressOf(String(i));
    expect(last).toBe('127.127.255.254');
    expect(table.addressOf('again')).toBe('127.64.0.2');
    expect(pinned).toBe('127.64.0.1');
  });
});
