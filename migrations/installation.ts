import type { MigrationInterface, QueryRunner } from 'typeorm';

export class Installation1763700000045 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // The installation of this database: one row, written by the first process that starts. Data folders and engine
    // objects carry the same id. origin names the server and the database where the id was created; a copy of the
    // database has a different place and can be recognised by that.
    await runner.query(`
      CREATE TABLE installation (
        singleton  boolean     PRIMARY KEY DEFAULT true CHECK (singleton),
        id         text        NOT NULL,
        origin     text,
        created_at timestamptz NOT NULL DEFAULT now()
      )`);
    // The limit of a user's kept sandboxes. NULL: SANDBOXES_PER_USER; 0: no fixed limit.
    await runner.query(`
      ALTER TABLE users ADD COLUMN sandboxes_per_user integer CHECK (sandboxes_per_user >= 0)`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`ALTER TABLE users DROP COLUMN sandboxes_per_user`);
    await runner.query(`DROP TABLE installation`);
  }
}
