import type { MigrationInterface, QueryRunner } from 'typeorm';

export class Operators1763700000091 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // Operators see and change what belongs to all users.
    await runner.query(`ALTER TABLE users ADD COLUMN operator boolean NOT NULL DEFAULT false`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`ALTER TABLE users DROP COLUMN operator`);
  }
}
