import type { MigrationInterface, QueryRunner } from 'typeorm';

export class SandboxReapers1763700000012 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // Who is destroying a doomed sandbox, so that others on the same host leave it alone; until when they do.
    await runner.query(`
      ALTER TABLE sandboxes ADD COLUMN reaper text, ADD COLUMN reaper_until timestamptz`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`ALTER TABLE sandboxes DROP COLUMN reaper, DROP COLUMN reaper_until`);
  }
}
