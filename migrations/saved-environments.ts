import type { MigrationInterface, QueryRunner } from 'typeorm';

export class SavedEnvironments1763700000090 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // For BUILD_ON_SAVE: workers look for what was saved a short time ago.
    await runner.query(`
      CREATE INDEX environments_by_change ON environments (updated_at) WHERE archived_at IS NULL`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query('DROP INDEX environments_by_change');
  }
}
