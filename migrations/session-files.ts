import type { MigrationInterface, QueryRunner } from 'typeorm';

export class SessionFiles1763700000080 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // Files that a new session was given, until they are written to its sandbox.
    await runner.query(`
      CREATE TABLE session_files (
        session_id uuid  NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        path       text  NOT NULL,
        content    bytea NOT NULL,
        PRIMARY KEY (session_id, path)
      )`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`DROP TABLE session_files`);
  }
}
