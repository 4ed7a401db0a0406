import type { MigrationInterface, QueryRunner } from 'typeorm';

export class TurnTraceparent1763700000020 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // W3C trace context of the request that created the turn. The process that runs the turn continues the same trace.
    await runner.query(`ALTER TABLE turns ADD COLUMN traceparent text`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`ALTER TABLE turns DROP COLUMN traceparent`);
  }
}
