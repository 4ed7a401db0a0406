import { describe, expect, it } from '@jest/globals';
import { KeyRing } from '../../secrets/key-ring.js';
import { WorkerTokens } from './worker-tokens.js';

const [OLD, NEW, OTHER] = ['old', 'new', 'other'].map(
  (id) => `${id}:${Buffer.alloc(32, id).toString('base64')}`,
);
const SCOPE = {
  url: 'http://worker.example:8090',
  sandboxId: '4745ce70-42bb-4863-a9b2-0f1947aa3431',
};

let now = 1_800_000_000_000;
const of = (...keys: (string | undefined)[]): WorkerTokens =>
  new WorkerTokens(KeyRing.parse(keys.join(',')), { now: () => now, monotonic: () => now });

describe('a token for the files of a sandbox', () => {
  it('is taken by a worker with the same keys, which proves that it has them', () => {
    const [caller, worker] = [of(NEW), of(NEW)];
    const token = caller.issue(SCOPE);
    const proof = worker.redeem(token, SCOPE);
    expect(caller.isProof(proof ?? '', token, SCOPE)).toBe(true);
    const another = caller.issue(SCOPE);
    expect(caller.isProof(proof ?? '', another, SCOPE)).toBe(false);
    expect(caller.isProof('', token, SCOPE)).toBe(false);
    // What was sent is no proof.
    expect(caller.isProof(token.split('.')[2] ?? '', token, SCOPE)).toBe(false);
  });

  it('is taken while keys are rotated', () => {
    for (const [caller, worker] of [
      [of(OLD), of(NEW, OLD)],
      [of(OLD, NEW), of(NEW, OLD)],
    ] as const) {
      const token = caller.issue(SCOPE);
      expect(caller.isProof(worker.redeem(token, SCOPE) ?? '', token, SCOPE)).toBe(true);
    }
  });

  it('is taken once', () => {
    const worker = of(NEW);
    const token = of(NEW).issue(SCOPE);
    expect(worker.redeem(token, SCOPE)).toBeDefined();
    expect(worker.redeem(token, SCOPE)).toBeUndefined();
    now += 59_000;
    expect(worker.redeem(token, SCOPE)).toBeUndefined();
  });

  it('is taken for one minute, also by a clock that is slow', () => {
    const token = of(NEW).issue(SCOPE);
    const begun = now;
    for (const [shift, isValid] of [
      [-61_000, false],
      [-59_000, true],
      [59_000, true],
      [61_000, false],
    ] as const) {
      now = begun + shift;
      expect([shift, of(NEW).redeem(token, SCOPE) !== undefined]).toEqual([shift, isValid]);
    }
    now = begun;
  });

  it('is refused for another sandbox, worker or installation, and with any change', () => {
    const token = of(NEW).issue(SCOPE);
    const worker = of(NEW);
    expect(worker.redeem(token, { ...SCOPE, url: 'http://other.example:8090' })).toBeUndefined();
    const sandboxId = '00000000-42bb-4863-a9b2-0f1947aa3431';
    expect(worker.redeem(token, { ...SCOPE, sandboxId })).toBeUndefined();
    expect(of(OTHER).redeem(token, SCOPE)).toBeUndefined();
    for (let index = 0; index < token.length; index += 1) {
      const changed = token[index] === 'x' ? 'y' : 'x';
      const forged = token.slice(0, index) + changed + token.slice(index + 1);
      expect([index, worker.redeem(forged, SCOPE)]).toEqual([index, undefined]);
    }
    for (const bad of ['', '..', token.slice(1), `${token}x`, 'x'.repeat(10_000)]) {
      expect(worker.redeem(bad, SCOPE)).toBeUndefined();
    }
    expect(worker.redeem(token, SCOPE)).toBeDefined();
  });
});
