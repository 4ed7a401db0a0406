import type { MigrationInterface, QueryRunner } from 'typeorm';

export class Agents1763700000003 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // environment_id is not a foreign key: an agent may outlive the environment that it names.
    await runner.query(`
      CREATE TABLE agents (
        id                 uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
        user_id            uuid        NOT NULL REFERENCES users (id),
        name               text        NOT NULL,
        provider           text        NOT NULL,
        model              text        NOT NULL,
        system             text        NOT NULL,
        skills             jsonb       NOT NULL,
        mcp_servers        jsonb       NOT NULL,
        mcp_secrets_sealed text,
        environment_id     uuid,
        metadata           jsonb       NOT NULL,
        version            integer     NOT NULL DEFAULT 1,
        created_at         timestamptz NOT NULL DEFAULT now(),
        updated_at         timestamptz NOT NULL DEFAULT now(),
        archived_at        timestamptz
      )`);
    await runner.query(`
      CREATE INDEX agents_of_user ON agents (user_id, created_at DESC, id DESC)
        WHERE archived_at IS NULL`);
    await runner.query(`
      CREATE TABLE agent_versions (
        agent_id           uuid        NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
        version            integer     NOT NULL,
        snapshot           jsonb       NOT NULL,
        mcp_secrets_sealed text,
        created_at         timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (agent_id, version)
      )`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`DROP TABLE agent_versions, agents`);
  }
}
