import { describe, expect, it } from '@jest/globals';
import { Clock } from '../common/clock.js';
import { generateAccessToken } from './access-token.js';
import { TokenVerifier } from './token-verifier.js';
import type { TokensRepository, ValidToken } from './tokens.repository.js';

class ManualClock extends Clock {
  time = 0;
  now = () => this.time;
  monotonic = () => this.time;
}

function setUp() {
  const clock = new ManualClock();
  const store = { answer: undefined as ValidToken | undefined, lookups: 0 };
  const repository = {
    findValidUnscoped: async () => {
      store.lookups += 1;
      return store.answer;
    },
  } as unknown as TokensRepository;
  return { clock, store, verifier: new TokenVerifier(repository, clock) };
}

const valid = (expiresInMs: number | null = null): ValidToken => ({
  userId: 'u',
  tokenId: 't',
  expiresInMs,
});

describe('the token verifier', () => {
  it('asks the database once in two seconds, and once for many at a time', async () => {
    const { clock, store, verifier } = setUp();
    const token = generateAccessToken();
    store.answer = valid();
    const answers = await Promise.all(Array.from({ length: 50 }, () => verifier.verify(token)));
    expect(answers).toEqual(Array.from({ length: 50 }, () => ({ userId: 'u', tokenId: 't' })));
    clock.time = 1_999;
    await verifier.verify(token);
    expect(store.lookups).toBe(1);
    clock.time = 2_000;
    store.answer = undefined;
    expect(await verifier.verify(token)).toBeUndefined();
    expect(store.lookups).toBe(2);
  });

  it('does not remember a token beyond its expiry', async () => {
    const { clock, store, verifier } = setUp();
    const token = generateAccessToken();
    store.answer = valid(300);
    expect(await verifier.verify(token)).toBeDefined();
    store.answer = undefined;
    clock.time = 299;
    expect(await verifier.verify(token)).toBeDefined();
    clock.time = 300;
    expect(await verifier.verify(token)).toBeUndefined();
  });

  it('does not remember refusals: a new token works at once', async () => {
    const { store, verifier } = setUp();
    const token = generateAccessToken();
    expect(await verifier.verify(token)).toBeUndefined();
    store.answer = valid();
    expect(await verifier.verify(token)).toBeDefined();
  });

  it('asks nothing for what cannot be a token', async () => {
    const { store, verifier } = setUp();
    for (const text of ['', 'x', `${generateAccessToken()}x`]) {
      expect(await verifier.verify(text)).toBeUndefined();
    }
    expect(store.lookups).toBe(0);
  });

  it('remembers a bounded number, and forgets the oldest', async () => {
    const { store, verifier } = setUp();
    store.answer = valid();
    const tokens = Array.from({ length: 10_001 }, generateAccessToken);
    for (const token of tokens) await verifier.verify(token);
    expect(store.lookups).toBe(10_001);
    await verifier.verify(tokens[1] ?? '');
    expect(store.lookups).toBe(10_001);
    await verifier.verify(tokens[0] ?? '');
    expect(store.lookups).toBe(10_002);
  });

  it('passes on that the database is away, and tries again next time', async () => {
    const clock = new ManualClock();
    let fails = true;
    const repository = {
      findValidUnscoped: async () => {
        if (fails) throw new Error('away');
        return valid();
      },
    } as unknown as TokensRepository;
    const verifier = new TokenVerifier(repository, clock);
    const token = generateAccessToken();
    await expect(verifier.verify(token)).rejects.toThrow('away');
    fails = false;
    expect(await verifier.verify(token)).toBeDefined();
  });
});
