import type { MigrationInterface, QueryRunner } from 'typeorm';

export class Environments1763700000002 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await runner.query(`
      CREATE TABLE environments (
        id              uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
        user_id         uuid        NOT NULL REFERENCES users (id),
        name            text,
        packages        jsonb       NOT NULL,
        env_var_keys    text[]      NOT NULL,
        env_vars_sealed text,
        setup_script    text        NOT NULL,
        networking      jsonb       NOT NULL,
        version         integer     NOT NULL DEFAULT 1,
        referenced      boolean     NOT NULL DEFAULT false,
        created_at      timestamptz NOT NULL DEFAULT now(),
        updated_at      timestamptz NOT NULL DEFAULT now(),
        archived_at     timestamptz
      )`);
    await runner.query(`
      CREATE INDEX environments_of_user ON environments (user_id, created_at DESC, id DESC)
        WHERE archived_at IS NULL`);
    await runner.query(`
      CREATE TABLE environment_versions (
        environment_id  uuid        NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
        version         integer     NOT NULL,
        snapshot        jsonb       NOT NULL,
        env_vars_sealed text,
        created_at      timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (environment_id, version)
      )`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`DROP TABLE environment_versions, environments`);
  }
}
