import type { MigrationInterface, QueryRunner } from 'typeorm';

export class EnvironmentBuilds1763700000085 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // The last build of a version. `seen_at` is renewed while it goes on: a build that nobody renews was interrupted.
    await runner.query(`
      CREATE TABLE environment_builds (
        environment_id uuid        NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
        version        integer     NOT NULL,
        status         text        NOT NULL CHECK (status IN ('building', 'ready', 'failed')),
        started_at     timestamptz NOT NULL DEFAULT now(),
        seen_at        timestamptz NOT NULL DEFAULT now(),
        ended_at       timestamptz,
        error          text,
        PRIMARY KEY (environment_id, version)
      )`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query('DROP TABLE environment_builds');
  }
}
