import { Injectable } from '@nestjs/common';
import type { Owner } from '../common/owner.decorator.js';
import { Sql } from '../database/sql.js';

/** A token that is valid now. */
export interface ValidToken extends Owner {
  /** How long it stays so at most, by the database's clock; `null` without an expiry. */
  expiresInMs: number | null;
}

const FIND_VALID = {
  name: 'auth-find-valid',
  text: `
    SELECT id AS "tokenId", user_id AS "userId",
           (extract(epoch FROM expires_at - now()) * 1000)::float8 AS "expiresInMs"
      FROM access_tokens
     WHERE token_hash = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())`,
};
// The condition keeps it to one write a minute over all processes, and spares the row a new version.
const TOUCH = {
  name: 'auth-touch',
  text: `
    UPDATE access_tokens SET last_used_at = now()
     WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')`,
};

/** Tokens as the guard needs them. On the path of every request, hence hand-written. */
@Injectable()
export class TokensRepository {
  constructor(private readonly sql: Sql) {}

  /** @returns `undefined` for an unknown, expired or revoked token alike. */
  async findValidUnscoped(hash: Buffer): Promise<ValidToken | undefined> {
    const [row] = await this.sql.query<ValidToken & Record<string, unknown>>(FIND_VALID, [hash]);
    return row;
  }

  async touchUnscoped(tokenId: string): Promise<void> {
    await this.sql.query(TOUCH, [tokenId]);
  }
}
