import type { MigrationInterface, QueryRunner } from 'typeorm';

export class FramedLog1763700000030 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // A row may hold many events, ready to be sent: compressing them would cost more than it saves. Partitions that are
    // there have it said one by one, later ones take it from the table.
    await runner.query(`ALTER TABLE event_log ALTER COLUMN data SET STORAGE EXTERNAL`);
    await runner.query(`
      DO $$
      DECLARE day regclass;
      BEGIN
        FOR day IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'event_log'::regclass LOOP
          EXECUTE format('ALTER TABLE %s ALTER COLUMN data SET STORAGE EXTERNAL', day);
        END LOOP;
      END $$`);
    // Events are numbered within their session.
    await runner.query(`DROP SEQUENCE event_log_ids`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`CREATE SEQUENCE event_log_ids AS bigint CACHE 1`);
    await runner.query(
      `SELECT setval('event_log_ids', (SELECT coalesce(max(id), 1) FROM event_log))`,
    );
    await runner.query(`ALTER TABLE event_log ALTER COLUMN data SET STORAGE EXTENDED`);
  }
}
