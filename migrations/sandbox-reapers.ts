import type { MigrationInterface, QueryRunner } from 'typeorm';

export class SandboxReapers1763700000012 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // The reaper that is destroying a sandbox, and until when the others on its host leave that sandbox alone.
    await runner.query(`
      ALTER TABLE sandboxes ADD COLUMN reaper text, ADD COLUMN reaper_until timestamptz`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`ALTER TABLE sandboxes DROP COLUMN reaper, DROP COLUMN reaper_until`);
  }
}
