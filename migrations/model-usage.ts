import type { MigrationInterface, QueryRunner } from 'typeorm';

const SUMS = `
  requests                    bigint         NOT NULL DEFAULT 0,
  input_tokens                bigint         NOT NULL DEFAULT 0,
  output_tokens               bigint         NOT NULL DEFAULT 0,
  cache_read_input_tokens     bigint         NOT NULL DEFAULT 0,
  cache_creation_input_tokens bigint         NOT NULL DEFAULT 0,
  cost_usd                    numeric NOT NULL DEFAULT 0,
  unpriced                    bigint         NOT NULL DEFAULT 0`;

export class ModelUsage1763700000071 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // One row for each request to a model API, by the id that the gateway gave it: a request that is reported again is
    // not counted again. cost_usd is NULL if the price is not known. No foreign keys: rows outlive their session.
    await runner.query(`
      CREATE TABLE usage_requests (
        id                          uuid           PRIMARY KEY,
        user_id                     uuid           NOT NULL,
        session_id                  uuid           NOT NULL,
        turn_id                     uuid           NOT NULL,
        api                         text           NOT NULL,
        model                       text           NOT NULL,
        status                      integer        NOT NULL,
        input_tokens                bigint         NOT NULL,
        output_tokens               bigint         NOT NULL,
        cache_read_input_tokens     bigint         NOT NULL,
        cache_creation_input_tokens bigint         NOT NULL,
        cost_usd                    numeric,
        started_at                  timestamptz    NOT NULL,
        duration_ms                 bigint         NOT NULL,
        recorded_at                 timestamptz    NOT NULL DEFAULT now()
      )`);
    await runner.query(`CREATE INDEX usage_requests_recorded ON usage_requests (recorded_at)`);
    // Sums are in tables of their own, so that they never wait for the locks on sessions and turns. unpriced counts
    // requests whose price is not known. A day is one of UTC.
    await runner.query(`
      CREATE TABLE usage_turns (turn_id uuid PRIMARY KEY, session_id uuid NOT NULL, ${SUMS})
        WITH (fillfactor = 70)`);
    await runner.query(`CREATE INDEX usage_turns_of_session ON usage_turns (session_id)`);
    await runner.query(`
      CREATE TABLE usage_sessions (session_id uuid PRIMARY KEY, ${SUMS}) WITH (fillfactor = 70)`);
    await runner.query(`
      CREATE TABLE usage_days (
        user_id uuid NOT NULL,
        day     date NOT NULL,
        api     text NOT NULL,
        model   text NOT NULL,
        ${SUMS},
        PRIMARY KEY (user_id, day, api, model)
      ) WITH (fillfactor = 70)`);
    await runner.query(`
      ALTER TABLE sessions
        ADD COLUMN budget_tokens bigint CHECK (budget_tokens > 0),
        ADD COLUMN budget_usd double precision CHECK (budget_usd > 0)`);
    // Last, because it locks users, which every request reads. NULL follows the configuration, 0 is no limit.
    await runner.query(`
      ALTER TABLE users
        ADD COLUMN tokens_per_month bigint CHECK (tokens_per_month >= 0),
        ADD COLUMN usd_per_month double precision CHECK (usd_per_month >= 0)`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`ALTER TABLE users DROP COLUMN tokens_per_month, DROP COLUMN usd_per_month`);
    await runner.query(`ALTER TABLE sessions DROP COLUMN budget_tokens, DROP COLUMN budget_usd`);
    await runner.query(`DROP TABLE usage_requests, usage_turns, usage_sessions, usage_days`);
  }
}
