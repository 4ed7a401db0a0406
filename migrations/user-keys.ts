import type { MigrationInterface, QueryRunner } from 'typeorm';

export class UserKeys1763700000070 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // Keys of model APIs that users have themselves, encrypted. They take precedence over those of the configuration.
    await runner.query(`
      CREATE TABLE user_keys (
        user_id    uuid        NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        provider   text        NOT NULL,
        key_sealed text        NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (user_id, provider)
      )`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`DROP TABLE user_keys`);
  }
}
