import type { MigrationInterface, QueryRunner } from 'typeorm';

export class AdoptedSandboxes1763700000031 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // The session's sandbox if it was adopted from the pool instead of created under the session's own id.
    await runner.query(`ALTER TABLE sandboxes ADD COLUMN sandbox_id uuid`);
    // The unique index also ensures that no two sessions have the same sandbox.
    await runner.query(
      `CREATE UNIQUE INDEX sandboxes_adopted ON sandboxes (sandbox_id) WHERE sandbox_id IS NOT NULL`,
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`ALTER TABLE sandboxes DROP COLUMN sandbox_id`);
  }
}
