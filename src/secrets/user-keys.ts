import { Injectable } from '@nestjs/common';
import { badRequest } from '../common/errors.js';
import type { AppConfig } from '../config/app-config.js';
import { Sql } from '../database/sql.js';
import { KeyRing, secretContext } from './key-ring.js';

const SET = {
  name: 'user-keys-set',
  text: `
    INSERT INTO user_keys (user_id, provider, key_sealed) VALUES ($1, $2, $3)
    ON CONFLICT (user_id, provider) DO UPDATE SET key_sealed = excluded.key_sealed, updated_at = now()`,
};
const LIST = {
  name: 'user-keys-list',
  text: `
    SELECT provider, created_at AS "createdAt", updated_at AS "updatedAt" FROM user_keys
    WHERE user_id = $1 ORDER BY provider`,
};
const REMOVE = {
  name: 'user-keys-remove',
  text: 'DELETE FROM user_keys WHERE user_id = $1 AND provider = $2 RETURNING provider',
};
const HAS = {
  name: 'user-keys-has',
  text: 'SELECT FROM user_keys WHERE user_id = $1 AND provider = $2',
};

/** Keys are sent in a header, and a grant that holds one must fit into a header, too. */
const MAX_LENGTH = 4096;

/** A model API, as configuration names it. */
type Provider = keyof AppConfig['providers'];

/** A user's key without its value. Timestamps are ISO 8601 with microseconds. */
export interface UserKey {
  provider: Provider;
  createdAt: string;
  /** When the key was set the last time. */
  updatedAt: string;
}

/** The keys that users have for model APIs, encrypted. They take precedence over those of the configuration. */
@Injectable()
export class UserKeys {
  constructor(
    private readonly sql: Sql,
    private readonly ring: KeyRing,
  ) {}

  /** Stores a key, in place of the one that the user may have. @throws DomainError when it cannot be a key */
  async set(userId: string, provider: Provider, key: string): Promise<void> {
    requireKey(key);
    const sealed = this.ring.seal(key, secretContext.userKey(userId, provider));
    await this.sql.query(SET, [userId, provider, sealed]);
  }

  async list(userId: string): Promise<UserKey[]> {
    return this.sql.query<UserKey & Record<string, unknown>>(LIST, [userId]);
  }

  /** @returns whether there was one */
  async remove(userId: string, provider: Provider): Promise<boolean> {
    return (await this.sql.query(REMOVE, [userId, provider])).length > 0;
  }

  async has(userId: string, provider: Provider): Promise<boolean> {
    return (await this.sql.query(HAS, [userId, provider])).length > 0;
  }
}

/** The messages never contain the key. */
function requireKey(key: string): void {
  if (key === '') throw badRequest('The key is empty');
  if (key.length > MAX_LENGTH) throw badRequest(`A key has at most ${MAX_LENGTH} characters`);
  if (!/^[\x21-\x7e]+$/.test(key)) {
    throw badRequest('A key is one line of printable ASCII characters without spaces');
  }
}
