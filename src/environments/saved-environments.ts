import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import { type BuiltVersion, LOST_SECONDS } from './environment-builds.js';

/** Environments that were saved longer ago are left to their next session. Seconds. */
const RECENT_SECONDS = 3600;

/** One claim at a time in all processes. */
const LOCK = {
  name: 'saved-environments-lock',
  text: `SELECT pg_advisory_xact_lock(hashtext('saved-environments'))`,
};
// A user has at most one build at a time that is going on, whoever began it, and whose last build is longest ago comes
// first: so a user who saves a hundred environments delays nobody else by more than one build.
const CLAIM = {
  name: 'saved-environments-claim',
  text: `
    WITH next AS (
      SELECT e.id, e.version
      FROM environments e
      LEFT JOIN environment_builds b ON b.environment_id = e.id AND b.version = e.version
      LEFT JOIN LATERAL (
        SELECT max(o.started_at) AS last,
          bool_or(o.status = 'building' AND o.seen_at > now() - make_interval(secs => $2)) AS builds
        FROM environments mine JOIN environment_builds o ON o.environment_id = mine.id
        WHERE mine.user_id = e.user_id) theirs ON true
      WHERE e.archived_at IS NULL AND e.updated_at > now() - make_interval(secs => $1)
        AND (jsonb_array_length(e.packages) > 0 OR e.setup_script ~ '\\S')
        AND (b.status IS NULL
          OR b.status = 'building' AND b.seen_at <= now() - make_interval(secs => $2))
        AND theirs.builds IS NOT TRUE
      ORDER BY theirs.last NULLS FIRST, e.updated_at
      LIMIT 1)
    INSERT INTO environment_builds AS b (environment_id, version, status)
    SELECT id, version, 'building' FROM next
    ON CONFLICT (environment_id, version) DO UPDATE SET seen_at = now(), started_at = now()
      WHERE b.status = 'building' AND b.seen_at <= now() - make_interval(secs => $2)
    RETURNING environment_id AS id, version`,
};

/** The queue of environments that were saved and are not built yet: the environments themselves. */
@Injectable()
export class SavedEnvironments {
  constructor(private readonly sql: Sql) {}

  /**
   * Claims the version that is to be built next, and records that its build has begun.
   * @returns `undefined` if there is none, or only those of users for whom another build is going on
   */
  async claimUnscoped(): Promise<BuiltVersion | undefined> {
    return this.sql.transaction(async (sql) => {
      await sql.query(LOCK, []);
      const [claimed] = await sql.query<BuiltVersion>(CLAIM, [RECENT_SECONDS, LOST_SECONDS]);
      return claimed;
    });
  }
}
