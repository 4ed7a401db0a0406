import { describe, expect, it } from '@jest/globals';
import { RateLimit } from '../../common/rate-limit.js';
import { RELAY_LIMITS } from './limits.js';
import { NameLookups } from './name-lookups.js';

describe('RateLimit', () => {
  it('lets a burst through, and then as many as time allows', () => {
    let now = 0;
    const limit = new RateLimit({ each: 10, burst: 3 }, () => now);
    const taken = (): boolean[] => Array.from({ length: 5 }, () => limit.take());
    expect(taken()).toEqual([true, true, true, false, false]);
    now += 200;
    expect(taken()).toEqual([true, true, false, false, false]);
    now += 3_600_000;
    expect(taken()).toEqual([true, true, true, false, false]);
  });
});

describe('NameLookups', () => {
  /** Lookups that end when they are told to. */
  function lookups(limits: Partial<typeof RELAY_LIMITS> = {}) {
    const asked: string[] = [];
    const ends: ((found: boolean | Error) => void)[] = [];
    let now = 0;
    const names = new NameLookups(
      (name) => {
        asked.push(name);
        return new Promise((resolve, reject) => {
          ends.push((found) => (found instanceof Error ? reject(found) : resolve(found)));
        });
      },
      { ...RELAY_LIMITS, ...limits },
      () => now,
    );
    return { names, asked, ends, pass: (ms: number) => (now += ms) };
  }

  it('asks once for a name that is asked for at once, and remembers the answer shortly', async () => {
    const { names, asked, ends, pass } = lookups();
    const both = Promise.all([names.existenceOf('a.example'), names.existenceOf('a.example')]);
    ends[0]?.(true);
    expect(await both).toEqual(['found', 'found']);
    pass(20_000);
    expect(await names.existenceOf('a.example')).toBe('found');
    expect(asked).toHaveLength(1);
    pass(20_000);
    const again = names.existenceOf('a.example');
    ends[1]?.(false);
    expect(await again).toBe('missing');
    pass(6_000);
    const last = names.existenceOf('a.example');
    ends[2]?.(new Error('nobody answers'));
    expect(await last).toBe('failed');
    expect(asked).toHaveLength(3);
  });

  it('limits how many are under way, and how many there are in a second', async () => {
    const { names, ends, pass } = lookups({
      lookups: 2,
      lookupsPerSecond: { each: 1, burst: 3 },
    });
    const waiting = ['a', 'b'].map((name) => names.existenceOf(name));
    expect(await names.existenceOf('c')).toBe('busy');
    for (const end of ends) end(true);
    expect(await Promise.all(waiting)).toEqual(['found', 'found']);
    const third = names.existenceOf('c');
    ends[2]?.(true);
    expect(await third).toBe('found');
    expect(await names.existenceOf('d')).toBe('busy');
    pass(1000);
    const fourth = names.existenceOf('d');
    ends[3]?.(true);
    expect(await fourth).toBe('found');
  });
});
