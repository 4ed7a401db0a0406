import type { MigrationInterface, QueryRunner } from 'typeorm';

export class DeletedLogs1763700000041 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // Deleted sessions whose log is too large to be deleted in the same statement. Maintenance deletes the rest.
    await runner.query(`
      CREATE TABLE deleted_logs (
        session_id uuid        PRIMARY KEY,
        deleted_at timestamptz NOT NULL DEFAULT now()
      )`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`DROP TABLE deleted_logs`);
  }
}
