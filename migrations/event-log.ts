import type { MigrationInterface, QueryRunner } from 'typeorm';

export class EventLog1763700000005 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await runner.query(`CREATE SEQUENCE event_log_ids AS bigint CACHE 1`);
    // kind: 0 is a provisioning stage (data is JSON), 1 stdout, 2 stderr. There is no foreign key: rows are deleted
    // with their session or dropped with their day's partition.
    await runner.query(`
      CREATE TABLE event_log (
        session_id uuid        NOT NULL,
        id         bigint      NOT NULL,
        created_at timestamptz NOT NULL,
        turn       integer     NOT NULL,
        kind       smallint    NOT NULL,
        data       text        NOT NULL,
        PRIMARY KEY (session_id, id, created_at)
      ) PARTITION BY RANGE (created_at)`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`DROP TABLE event_log`);
    await runner.query(`DROP SEQUENCE event_log_ids`);
  }
}
