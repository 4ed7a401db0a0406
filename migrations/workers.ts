import type { MigrationInterface, QueryRunner } from 'typeorm';

export class Workers1763700000010 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // The workers, their hosts, and their last heartbeats. problem: why a worker cannot create sandboxes, if it cannot.
    await runner.query(`
      CREATE TABLE workers (
        owner      text        PRIMARY KEY,
        driver     text        NOT NULL,
        host       text,
        problem    text,
        started_at timestamptz NOT NULL DEFAULT now(),
        seen_at    timestamptz NOT NULL DEFAULT now()
      )`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`DROP TABLE workers`);
  }
}
