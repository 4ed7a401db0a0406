import type { MigrationInterface, QueryRunner } from 'typeorm';

export class OperatorActions1763700000021 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // Commands of operators. A process of the service writes them to its log and deletes them.
    await runner.query(`
      CREATE TABLE operator_actions (
        id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        recorded_at timestamptz NOT NULL DEFAULT now(),
        operator    text        NOT NULL,
        action      text        NOT NULL,
        object      text,
        result      text        NOT NULL
      )`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`DROP TABLE operator_actions`);
  }
}
