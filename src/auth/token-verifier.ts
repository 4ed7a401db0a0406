import { Injectable, type BeforeApplicationShutdown, Logger } from '@nestjs/common';
import type { Owner } from '../common/request-decorators.js';
import { Sql } from '../database/sql.js';
import { Clock } from '../common/clock.js';
import { isDatabaseUnavailable } from '../common/database-errors.js';
import { hashAccessToken, isWellFormedAccessToken } from './access-token.js';

/** A token that is valid now. */
export interface ValidToken extends Owner {
  /** SHA-256 of the token. */
  hash: Buffer;
  /** The remaining lifetime by the database's clock; `null` if the token does not expire. */
  expiresInMs: number | null;
}

const FIND_VALID = {
  name: 'auth-find-valid',
  text: `
    SELECT t.token_hash AS hash, t.id AS "tokenId", t.user_id AS "userId",
           u.requests_per_minute AS "requestsPerMinute", u.streams_per_user AS "streamsPerUser",
           u.operator,
           (extract(epoch FROM t.expires_at - now()) * 1000)::float8 AS "expiresInMs"
      FROM access_tokens t JOIN users u ON u.id = t.user_id
     WHERE t.token_hash = ANY ($1) AND t.revoked_at IS NULL
       AND (t.expires_at IS NULL OR t.expires_at > now())`,
};
// The condition limits this to one write a minute across all processes, and avoids creating new row versions.
const TOUCH = {
  name: 'auth-touch',
  text: `
    UPDATE access_tokens SET last_used_at = now()
     WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')`,
};

/** Queries of tokens for authentication. Hand-written SQL because every request runs them. */
@Injectable()
export class TokensRepository {
  constructor(private readonly sql: Sql) {}

  /** @returns the valid tokens: those that are known and neither expired nor revoked. */
  async findValidUnscoped(hashes: readonly Buffer[]): Promise<ValidToken[]> {
    return this.sql.query<ValidToken & Record<string, unknown>>(FIND_VALID, [hashes]);
  }

  async touchUnscoped(tokenId: string): Promise<void> {
    await this.sql.query(TOUCH, [tokenId]);
  }
}

/** The largest number of tokens in one statement. */
const BATCH = 500;

interface Waiting {
  hash: Buffer;
  resolve: (token: ValidToken | undefined) => void;
  reject: (error: unknown) => void;
}

/**
 * Looks up tokens in the database, one statement at a time. Any number of forged tokens therefore uses only one
 * connection of the pool, and a valid token waits for at most two statements.
 */
@Injectable()
export class TokenLookups {
  private waiting: Waiting[] = [];
  private running = false;

  constructor(private readonly tokens: TokensRepository) {}

  /** @param hash of the token. @returns `undefined` if the token is not valid. */
  find(hash: Buffer): Promise<ValidToken | undefined> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ hash, resolve, reject });
      if (!this.running) void this.run();
    });
  }

  private async run(): Promise<void> {
    this.running = true;
    while (this.waiting.length > 0) {
      const batch = this.waiting.splice(0, BATCH);
      try {
        const found = await this.tokens.findValidUnscoped(batch.map(({ hash }) => hash));
        const byHash = new Map(found.map((token) => [token.hash.toString('latin1'), token]));
        for (const { hash, resolve } of batch) resolve(byHash.get(hash.toString('latin1')));
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    this.running = false;
  }
}

const INTERVAL_MS = 60_000;
const REMEMBERED = 10_000;

/**
 * Records when a token was last used. Requests do not wait for it, and it writes at most once a minute for each token.
 */
@Injectable()
export class LastUse implements BeforeApplicationShutdown {
  private readonly logger = new Logger(LastUse.name);
  private readonly notedAt = new Map<string, number>();
  private readonly writes = new Set<Promise<void>>();

  constructor(
    private readonly tokens: TokensRepository,
    private readonly clock: Clock,
  ) {}

  note(tokenId: string): void {
    const now = this.clock.monotonic();
    const last = this.notedAt.get(tokenId);
    if (last !== undefined && now - last < INTERVAL_MS) return;
    this.notedAt.delete(tokenId);
    this.notedAt.set(tokenId, now);
    if (this.notedAt.size > REMEMBERED) {
      this.notedAt.delete(this.notedAt.keys().next().value as string);
    }
    const write = this.tokens
      .touchUnscoped(tokenId)
      .catch((error: unknown) => {
        this.notedAt.delete(tokenId);
        // The request itself reports that the database is unavailable.
        if (!isDatabaseUnavailable(error))
          this.logger.warn(`The last use of tokens could not be recorded: ${String(error)}`);
      })
      .finally(() => this.writes.delete(write));
    this.writes.add(write);
  }

  /** Called before the pool closes. */
  async beforeApplicationShutdown(): Promise<void> {
    await Promise.all(this.writes);
  }
}

/** Revocation must take effect within 5 seconds; this leaves room for a slow look-up. */
const CACHE_MS = 2_000;
const CACHE_SIZE = 10_000;

/** A look-up's result, and until when it may be used. */
interface Known {
  owner: Owner | undefined;
  until: number;
}

/**
 * Finds the user of a token. Results are cached for two seconds, so that a busy client costs one look-up in that time,
 * even if it repeats an invalid token. Valid and invalid tokens have separate caches, because made-up tokens must not
 * evict real ones.
 */
@Injectable()
export class TokenVerifier {
  private readonly valid = new Map<string, Known>();
  private readonly refused = new Map<string, Known>();
  private readonly lookups = new Map<string, Promise<Owner | undefined>>();

  constructor(
    private readonly tokens: TokenLookups,
    private readonly clock: Clock,
  ) {}

  /** @returns `undefined` for a token that is not valid, whatever the reason. */
  async verify(token: string): Promise<Owner | undefined> {
    if (!isWellFormedAccessToken(token)) return undefined;
    // Keeps the hash instead of the token, so that a memory dump holds no usable tokens.
    const hash = hashAccessToken(token);
    const key = hash.toString('latin1');
    const known = this.valid.get(key) ?? this.refused.get(key);
    if (known && this.clock.monotonic() < known.until) return known.owner;

    let lookup = this.lookups.get(key);
    if (!lookup) {
      lookup = this.lookUp(key, hash).finally(() => this.lookups.delete(key));
      this.lookups.set(key, lookup);
    }
    return lookup;
  }

  private async lookUp(key: string, hash: Buffer): Promise<Owner | undefined> {
    // Counted from before the query, because the result may be that old.
    const askedAt = this.clock.monotonic();
    const token = await this.tokens.find(hash);
    this.valid.delete(key);
    this.refused.delete(key);
    if (!token) {
      remember(this.refused, key, { owner: undefined, until: askedAt + CACHE_MS });
      return undefined;
    }
    const { hash: _hash, expiresInMs, ...owner } = token;
    remember(this.valid, key, {
      owner,
      until: askedAt + Math.min(CACHE_MS, expiresInMs ?? CACHE_MS),
    });
    return owner;
  }
}

function remember(answers: Map<string, Known>, key: string, answer: Known): void {
  answers.set(key, answer);
  // Maps keep insertion order, and each look-up inserts its entry again, so the first entry is the oldest.
  if (answers.size > CACHE_SIZE) answers.delete(answers.keys().next().value as string);
}
