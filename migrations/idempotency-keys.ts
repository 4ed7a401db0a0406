import type { MigrationInterface, QueryRunner } from 'typeorm';

export class IdempotencyKeys1763700000011 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // Written in the transaction of the request itself. There is no foreign key to the session, because a retry gets
    // the same answer even if the session was deleted.
    await runner.query(`
      CREATE TABLE idempotency_keys (
        user_id    uuid        NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        route      text        NOT NULL,
        key        text        NOT NULL,
        body_hash  bytea       NOT NULL,
        session_id uuid        NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (user_id, route, key)
      )`);
    await runner.query(`CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at)`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`DROP TABLE idempotency_keys`);
  }
}
