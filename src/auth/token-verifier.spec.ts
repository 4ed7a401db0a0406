import { describe, expect, it } from '@jest/globals';
import { Clock } from '../common/clock.js';
import { generateAccessToken } from './access-token.js';
import {
  TokenVerifier,
  TokenLookups,
  type TokensRepository,
  type ValidToken,
} from './token-verifier.js';

class ManualClock extends Clock {
  time = 0;
  now = () => this.time;
  monotonic = () => this.time;
}

function setUp() {
  const clock = new ManualClock();
  const store = {
    answer: undefined as Omit<ValidToken, 'hash'> | undefined,
    lookups: 0,
    statements: 0,
    fails: false,
  };
  const repository = {
    findValidUnscoped: async (hashes: Buffer[]) => {
      store.statements += 1;
      store.lookups += hashes.length;
      await new Promise(setImmediate);
      if (store.fails) throw new Error('away');
      const { answer } = store;
      return answer ? hashes.map((hash) => ({ ...answer, hash })) : [];
    },
  } as unknown as TokensRepository;
  return { clock, store, verifier: new TokenVerifier(new TokenLookups(repository), clock) };
}

const valid = (expiresInMs: number | null = null): Omit<ValidToken, 'hash'> => ({
  userId: 'u',
  tokenId: 't',
  requestsPerMinute: null,
  streamsPerUser: null,
  operator: false,
  expiresInMs,
});

let many: string[] | undefined;
/** More than are remembered. */
const manyTokens = () => (many ??= Array.from({ length: 10_001 }, generateAccessToken));

describe('the token verifier', () => {
  it('asks the database once in two seconds, and once for many at a time', async () => {
    const { clock, store, verifier } = setUp();
    const token = generateAccessToken();
    store.answer = valid();
    const answers = await Promise.all(Array.from({ length: 50 }, () => verifier.verify(token)));
    expect(answers).toEqual(
      Array.from({ length: 50 }, () => expect.objectContaining({ userId: 'u', tokenId: 't' })),
    );
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

  it('asks once in two seconds for a token that is refused', async () => {
    const { clock, store, verifier } = setUp();
    const token = generateAccessToken();
    for (let index = 0; index < 5; index += 1) {
      expect(await verifier.verify(token)).toBeUndefined();
    }
    expect(store.lookups).toBe(1);
    clock.time = 2_000;
    store.answer = valid();
    expect(await verifier.verify(token)).toBeDefined();
  });

  it('asks for many made-up tokens in few statements, one at a time', async () => {
    const { store, verifier } = setUp();
    const tokens = Array.from({ length: 1_001 }, generateAccessToken);
    await Promise.all(tokens.map((token) => verifier.verify(token)));
    expect(store).toMatchObject({ lookups: 1_001, statements: 3 });
  });

  it('does not forget valid tokens for refused ones', async () => {
    const { store, verifier } = setUp();
    const token = generateAccessToken();
    store.answer = valid();
    await verifier.verify(token);
    store.answer = undefined;
    await Promise.all(manyTokens().map((each) => verifier.verify(each)));
    store.lookups = 0;
    expect(await verifier.verify(token)).toBeDefined();
    expect(store.lookups).toBe(0);
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
    const tokens = manyTokens();
    await Promise.all(tokens.map((token) => verifier.verify(token)));
    expect(store.lookups).toBe(10_001);
    await verifier.verify(tokens[1] ?? '');
    expect(store.lookups).toBe(10_001);
    await verifier.verify(tokens[0] ?? '');
    expect(store.lookups).toBe(10_002);
  });

  it('passes on that the database is away, and tries again next time', async () => {
    const { store, verifier } = setUp();
    store.fails = true;
    store.answer = valid();
    const token = generateAccessToken();
    await expect(verifier.verify(token)).rejects.toThrow('away');
    store.fails = false;
    expect(await verifier.verify(token)).toBeDefined();
  });
});
