import type { MigrationInterface, QueryRunner } from 'typeorm';

/**
 * Makes the state of a sandbox a column. Before, it followed from four columns: idle_since, doomed_at, reaper (which began
 * with 'warm ' if a pool kept the sandbox ready) and reaper_until. During a rolling upgrade, older processes read and
 * write those, and newer ones only state, state_since, owner and owner_until; a trigger keeps both in step. A later
 * version may drop the trigger and the old columns.
 */
export class SandboxStates1763700000060 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    // Whether a warm sandbox is ready, only the pool of the older process knows: it stays 'warming'.
    await runner.query(`
      CREATE FUNCTION sandbox_state(idle_since timestamptz, doomed_at timestamptz, reaper text)
        RETURNS text LANGUAGE sql IMMUTABLE AS $$
        SELECT CASE
          WHEN doomed_at IS NULL THEN CASE WHEN idle_since IS NULL THEN 'active' ELSE 'idle' END
          WHEN reaper LIKE 'warm %' THEN 'warming'
          ELSE 'deleting' END $$`);
    await runner.query(`
      CREATE FUNCTION sandbox_owner(reaper text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
        SELECT regexp_replace(reaper, '^warm ', '') $$`);
    // Existing rows get their values while the columns are added, so no row is updated; after that, the columns are like
    // any other. The table has a row for each sandbox, so it is small.
    await runner.query(`
      ALTER TABLE sandboxes
        ADD COLUMN state text
          GENERATED ALWAYS AS (sandbox_state(idle_since, doomed_at, reaper)) STORED NOT NULL
          CHECK (state IN ('warming', 'ready', 'active', 'idle', 'deleting')),
        ADD COLUMN state_since timestamptz
          GENERATED ALWAYS AS (coalesce(doomed_at, idle_since, created_at)) STORED NOT NULL,
        ADD COLUMN owner text GENERATED ALWAYS AS (sandbox_owner(reaper)) STORED,
        ADD COLUMN owner_until timestamptz GENERATED ALWAYS AS (reaper_until) STORED`);
    await runner.query(`
      ALTER TABLE sandboxes
        ALTER COLUMN state DROP EXPRESSION,
        ALTER COLUMN state_since DROP EXPRESSION,
        ALTER COLUMN owner DROP EXPRESSION,
        ALTER COLUMN owner_until DROP EXPRESSION`);
    await runner.query(`ALTER TABLE sandboxes ALTER COLUMN state_since SET DEFAULT now()`);
    // An older process inserts no state, or changes an old column. OLD is NULL for an INSERT.
    await runner.query(`
      CREATE FUNCTION keep_sandbox_columns_in_step() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        IF NEW.state IS NULL
          OR (NEW.idle_since, NEW.doomed_at, NEW.reaper, NEW.reaper_until)
            IS DISTINCT FROM (OLD.idle_since, OLD.doomed_at, OLD.reaper, OLD.reaper_until)
        THEN
          NEW.state := sandbox_state(NEW.idle_since, NEW.doomed_at, NEW.reaper);
          NEW.state_since := coalesce(NEW.doomed_at, NEW.idle_since, now());
          NEW.owner := sandbox_owner(NEW.reaper);
          NEW.owner_until := NEW.reaper_until;
        ELSE
          NEW.idle_since := CASE NEW.state WHEN 'idle' THEN NEW.state_since END;
          NEW.doomed_at := CASE
            WHEN NEW.state IN ('warming', 'ready', 'deleting') THEN NEW.state_since END;
          NEW.reaper := CASE
            WHEN NEW.state IN ('warming', 'ready') THEN 'warm ' || NEW.owner ELSE NEW.owner END;
          NEW.reaper_until := NEW.owner_until;
        END IF;
        RETURN NEW;
      END $$`);
    await runner.query(`
      CREATE TRIGGER keep_sandbox_columns_in_step BEFORE INSERT OR UPDATE ON sandboxes
        FOR EACH ROW EXECUTE FUNCTION keep_sandbox_columns_in_step()`);
    // Every look of a reaper is for some states, the oldest first.
    await runner.query(`CREATE INDEX sandboxes_by_state ON sandboxes (state, state_since)`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`DROP FUNCTION keep_sandbox_columns_in_step() CASCADE`);
    await runner.query(`
      ALTER TABLE sandboxes DROP COLUMN state, DROP COLUMN state_since, DROP COLUMN owner,
        DROP COLUMN owner_until`);
    await runner.query(`DROP FUNCTION sandbox_owner(text)`);
    await runner.query(`DROP FUNCTION sandbox_state(timestamptz, timestamptz, text)`);
  }
}
