import type { MigrationInterface, QueryRunner } from 'typeorm';

export class UserLimits1763700000050 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await runner.query(`
      CREATE FUNCTION stored_text_bytes(snapshot jsonb, sealed text) RETURNS integer
        LANGUAGE sql IMMUTABLE AS $$ SELECT octet_length(snapshot::text) + coalesce(octet_length(sealed), 0) $$`);
    await this.countVersions(runner, 'agent', 'mcp_secrets_sealed');
    await this.countVersions(runner, 'environment', 'env_vars_sealed');
    // Deleting an environment deletes its versions, which then cannot find their owner.
    await runner.query(`
      CREATE FUNCTION uncount_environment() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        UPDATE users SET stored_bytes = stored_bytes - coalesce((
          SELECT sum(bytes) FROM environment_versions WHERE environment_id = OLD.id), 0)
         WHERE id = OLD.user_id;
        RETURN OLD;
      END $$`);
    await runner.query(`
      CREATE TRIGGER uncount_environment BEFORE DELETE ON environments
        FOR EACH ROW EXECUTE FUNCTION uncount_environment()`);
    // The number of requests of a user in the minute that started then. Unlogged: it may be lost in a crash.
    await runner.query(`
      CREATE UNLOGGED TABLE request_counts (
        user_id  uuid        PRIMARY KEY,
        since    timestamptz NOT NULL,
        requests integer     NOT NULL
      ) WITH (fillfactor = 50)`);
    // This comes last because it locks users, which every request reads. NULL follows the configuration, 0 is no limit.
    // stored_bytes is the size of the user's agents and environments.
    await runner.query(`
      ALTER TABLE users
        ADD COLUMN stored_bytes_per_user bigint CHECK (stored_bytes_per_user >= 0),
        ADD COLUMN requests_per_minute integer CHECK (requests_per_minute >= 0),
        ADD COLUMN streams_per_user integer CHECK (streams_per_user >= 0),
        ADD COLUMN IF NOT EXISTS sandboxes_per_user integer,
        ADD COLUMN stored_bytes bigint NOT NULL DEFAULT 0`);
  }

  /**
   * Computes the size of each new version, including those that the previous release writes, and adds it to its user's
   * total. Maintenance measures existing versions a few at a time, because this transaction blocks all access to these
   * tables.
   */
  private async countVersions(runner: QueryRunner, kind: string, sealed: string): Promise<void> {
    await runner.query(`ALTER TABLE ${kind}_versions ADD COLUMN bytes integer`);
    await runner.query(`
      CREATE FUNCTION measure_${kind}_version() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        NEW.bytes := stored_text_bytes(NEW.snapshot, NEW.${sealed});
        RETURN NEW;
      END $$`);
    await runner.query(`
      CREATE TRIGGER measure_${kind}_version BEFORE INSERT ON ${kind}_versions
        FOR EACH ROW EXECUTE FUNCTION measure_${kind}_version()`);
    await runner.query(`
      CREATE FUNCTION count_${kind}_version() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        UPDATE users SET stored_bytes = stored_bytes + NEW.bytes
         WHERE id = (SELECT user_id FROM ${kind}s WHERE id = NEW.${kind}_id);
        RETURN NULL;
      END $$`);
    await runner.query(`
      CREATE TRIGGER count_${kind}_version AFTER INSERT ON ${kind}_versions
        FOR EACH ROW EXECUTE FUNCTION count_${kind}_version()`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`DROP TABLE request_counts`);
    await runner.query(`DROP FUNCTION uncount_environment() CASCADE`);
    for (const kind of ['agent', 'environment']) {
      await runner.query(`DROP FUNCTION measure_${kind}_version() CASCADE`);
      await runner.query(`DROP FUNCTION count_${kind}_version() CASCADE`);
      await runner.query(`ALTER TABLE ${kind}_versions DROP COLUMN bytes`);
    }
    await runner.query(`DROP FUNCTION stored_text_bytes(jsonb, text)`);
    await runner.query(`
      ALTER TABLE users DROP COLUMN stored_bytes_per_user, DROP COLUMN requests_per_minute,
        DROP COLUMN streams_per_user, DROP COLUMN stored_bytes`);
  }
}
