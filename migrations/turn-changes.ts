import type { MigrationInterface, QueryRunner } from 'typeorm';

export class TurnChanges1763700000083 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // What a session's repositories differed in from their bases at the end of a turn. Kept as long as the log.
    await runner.query(`
      CREATE TABLE turn_changes (
        session_id  uuid        NOT NULL,
        turn        integer     NOT NULL,
        mount_path  text        NOT NULL,
        base_sha    text,
        head_sha    text,
        files       jsonb       NOT NULL,
        patch_bytes bigint      NOT NULL,
        complete    boolean     NOT NULL DEFAULT false,
        created_at  timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (session_id, turn, mount_path)
      )`);
    await runner.query('CREATE INDEX turn_changes_created ON turn_changes (created_at)');
    // A patch in pieces, so that none of it is in memory as a whole.
    await runner.query(`
      CREATE TABLE turn_patches (
        session_id uuid    NOT NULL,
        turn       integer NOT NULL,
        mount_path text    NOT NULL,
        piece      integer NOT NULL,
        content    bytea   NOT NULL,
        PRIMARY KEY (session_id, turn, mount_path, piece),
        FOREIGN KEY (session_id, turn, mount_path)
          REFERENCES turn_changes (session_id, turn, mount_path) ON DELETE CASCADE
      )`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query('DROP TABLE turn_patches');
    await runner.query('DROP TABLE turn_changes');
  }
}
