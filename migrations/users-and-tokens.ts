import type { MigrationInterface, QueryRunner } from 'typeorm';

export class UsersAndTokens1763700000001 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await runner.query(`
      CREATE TABLE users (
        id            uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
        name          text        NOT NULL UNIQUE,
        session_limit integer     CHECK (session_limit >= 0),
        created_at    timestamptz NOT NULL DEFAULT now()
      )`);
    await runner.query(`
      CREATE TABLE access_tokens (
        id           uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
        user_id      uuid        NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        name         text        NOT NULL DEFAULT '',
        token_hash   bytea       NOT NULL UNIQUE CHECK (length(token_hash) = 32),
        created_at   timestamptz NOT NULL DEFAULT now(),
        expires_at   timestamptz,
        revoked_at   timestamptz,
        last_used_at timestamptz
      )`);
    await runner.query(`CREATE INDEX access_tokens_user ON access_tokens (user_id)`);
    // The keys that encrypted this database's secrets. A process whose ring lacks one must not start.
    await runner.query(`
      CREATE TABLE encryption_keys (
        id         text        PRIMARY KEY,
        probe      text        NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
      )`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`DROP TABLE encryption_keys, access_tokens, users`);
  }
}
