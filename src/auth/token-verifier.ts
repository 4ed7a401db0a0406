import { Injectable } from '@nestjs/common';
import { Clock } from '../common/clock.js';
import type { Owner } from '../common/owner.decorator.js';
import { hashAccessToken, isWellFormedAccessToken } from './access-token.js';
import { TokensRepository } from './tokens.repository.js';

/** Revocation has to be seen within 5 seconds; this leaves room for a slow look-up. */
const CACHE_MS = 2_000;
const CACHE_SIZE = 10_000;

interface Known {
  owner: Owner;
  until: number;
}

/**
 * Tells whose token it is. Valid tokens are remembered for two seconds, so that a busy client costs one look-up in that
 * time; refusals are not remembered, so that a new token works at once.
 */
@Injectable()
export class TokenVerifier {
  private readonly known = new Map<string, Known>();
  private readonly lookups = new Map<string, Promise<Owner | undefined>>();

  constructor(
    private readonly tokens: TokensRepository,
    private readonly clock: Clock,
  ) {}

  /** @returns `undefined` for anything that is not a valid token, whatever the reason. */
  async verify(token: string): Promise<Owner | undefined> {
    // The hash and not the token: nothing in memory should be worth stealing for longer than it must be.
    const hash = hashAccessToken(token);
    const key = hash.toString('latin1');
    const known = this.known.get(key);
    if (known && this.clock.monotonic() < known.until) return known.owner;
    if (!isWellFormedAccessToken(token)) return undefined;

    let lookup = this.lookups.get(key);
    if (!lookup) {
      lookup = this.lookUp(key, hash).finally(() => this.lookups.delete(key));
      this.lookups.set(key, lookup);
    }
    return lookup;
  }

  private async lookUp(key: string, hash: Buffer): Promise<Owner | undefined> {
    // Counted from before the question: the answer may be as old as that.
    const askedAt = this.clock.monotonic();
    const token = await this.tokens.findValidUnscoped(hash);
    this.known.delete(key);
    if (!token) return undefined;
    const owner = { userId: token.userId, tokenId: token.tokenId };
    const until = askedAt + Math.min(CACHE_MS, token.expiresInMs ?? CACHE_MS);
    this.known.set(key, { owner, until });
    if (this.known.size > CACHE_SIZE) {
      // Maps keep the order of insertion, and an entry is inserted anew with each look-up: the first is the oldest.
      this.known.delete(this.known.keys().next().value as string);
    }
    return owner;
  }
}
