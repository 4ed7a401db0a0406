import type { MigrationInterface, QueryRunner } from 'typeorm';

export class WorkerSlots1763700000082 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // How many turns the worker runs at a time; 0 once it has stopped. NULL for a worker of the previous release.
    await runner.query(`ALTER TABLE workers ADD COLUMN slots integer`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`ALTER TABLE workers DROP COLUMN slots`);
  }
}
