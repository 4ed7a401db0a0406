import type { MigrationInterface, QueryRunner } from 'typeorm';

export class AdoptedSandboxes1763700000031 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // The sandbox of a session where it was not made for it, under the session's own id, but adopted ready-made.
    await runner.query(`ALTER TABLE sandboxes ADD COLUMN sandbox_id uuid`);
    // Also what says that no two sessions ever have the same one.
    await runner.query(
      `CREATE UNIQUE INDEX sandboxes_adopted ON sandboxes (sandbox_id) WHERE sandbox_id IS NOT NULL`,
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`ALTER TABLE sandboxes DROP COLUMN sandbox_id`);
  }
}
