import type { MigrationInterface, QueryRunner } from 'typeorm';

export class TurnClaims1763700000040 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // claims: how often the turn was claimed since it last made progress. claim_mark: the sum of its last log id and
    // spool offset at the last claim; both only increase. Processes of the previous release neither count claims nor
    // reset the counter.
    await runner.query(`
      ALTER TABLE turns
        ADD COLUMN claims     integer NOT NULL DEFAULT 0,
        ADD COLUMN claim_mark bigint  NOT NULL DEFAULT 0`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`ALTER TABLE turns DROP COLUMN claims, DROP COLUMN claim_mark`);
  }
}
