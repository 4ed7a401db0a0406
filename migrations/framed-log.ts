import type { MigrationInterface, QueryRunner } from 'typeorm';

export class FramedLog1763700000030 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // A row may hold many events in the format in which they are sent, and compressing them would cost more than it
    // saves. Existing partitions need their own statement; later ones inherit it from the table.
    await runner.query(`ALTER TABLE event_log ALTER COLUMN data SET STORAGE EXTERNAL`);
    await runner.query(`
      DO $$
      DECLARE day regclass;
      BEGIN
        FOR day IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'event_log'::regclass LOOP
          EXECUTE format('ALTER TABLE %s ALTER COLUMN data SET STORAGE EXTERNAL', day);
        END LOOP;
      END $$`);
    // Event ids are assigned per session. The sequence event_log_ids is kept for processes of the previous release.
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`ALTER TABLE event_log ALTER COLUMN data SET STORAGE EXTENDED`);
  }
}
