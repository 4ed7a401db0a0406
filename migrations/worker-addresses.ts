import type { MigrationInterface, QueryRunner } from 'typeorm';

export class WorkerAddresses1763700000084 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // Where the worker serves the files of its sandboxes to other processes. NULL: it does not.
    await runner.query(`ALTER TABLE workers ADD COLUMN url text`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`ALTER TABLE workers DROP COLUMN url`);
  }
}
