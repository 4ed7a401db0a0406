import type { MigrationInterface, QueryRunner } from 'typeorm';

/** Creates an index while others write. This may take long and cannot be part of a transaction. */
export class WaitingSessions1763700000051 implements MigrationInterface {
  readonly transaction = false;

  async up(runner: QueryRunner): Promise<void> {
    // An earlier attempt that was interrupted leaves an invalid index behind.
    await runner.query(`DROP INDEX CONCURRENTLY IF EXISTS sessions_waiting_of_user`);
    // Claims alternate between the waiting users and take the oldest turn first. A pending session's row does not
    // change after its turn was queued, so updated_at is when that happened.
    await runner.query(`
      CREATE INDEX CONCURRENTLY sessions_waiting_of_user ON sessions (user_id, updated_at)
        WHERE status = 'pending'`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`DROP INDEX CONCURRENTLY sessions_waiting_of_user`);
  }
}
