import { recordSandboxes, USABLE } from '../sandboxes/lifecycle/session-sandboxes.js';

/** A worker that waits longer than this for an answer loses its leases meanwhile. */
export const LEASE_ANSWER_MS = 5_000;

/** How many waiting users one claim considers, besides the users of the turns that have waited the longest. */
const USERS = 16;

/**
 * How many of the user's sessions may be out of this worker's reach before one claim misses the user's other sessions.
 */
const UNREACHABLE = 8;

/** The turn has no sandbox yet, or one that this worker can reach and that is not marked for deletion. */
const REACHABLE = `
  (b.session_id IS NULL OR b.driver = $2 AND b.host IS NOT DISTINCT FROM $3 AND ${USABLE})`;
/** The turn has made progress since it was last claimed. */
const PROGRESSED = `t.last_log_id + t.spool_offset > t.claim_mark`;
const EXPIRED = `t.status = 'running' AND t.lease_expires_at <= now()`;

/** The next user, by id, who has a waiting session. Each step is one index lookup. */
const nextUser = (from: string): string => `
  (SELECT s.user_id FROM sessions s WHERE s.status = 'pending' AND s.user_id ${from}
   ORDER BY s.user_id LIMIT 1)`;

/**
 * Selects the turns that this worker may claim, the next one first, as `ranked` (id, place, queued_at).
 *
 * Fair between users: a user's n-th slot ranks after the (n-1)-th slot of every other waiting user, counting the slots that
 * the user already holds at this worker. So a free slot goes to the waiting user with the fewest, whatever the backlog, and
 * no user gets more than three quarters of a worker's slots while another one waits.
 *
 * Turns that have begun and whose lease has expired rank before all others. At most one of them may be a suspect: a turn
 * without progress since its last claim, which may have crashed its worker. If this worker crashes too, the cause is known.
 *
 * Reads a bounded number of rows: the turns that have waited the longest, the oldest turns of some waiting users (starting
 * at a random user, so that each is considered at some time), and turns whose lease has expired.
 *
 * The planner's statistics do not know a new backlog. To prevent plans that read all waiting turns, limits are in
 * sub-selects (so it walks the index in order instead of sorting), and OFFSET 0 and CASE prevent lookups of single turns
 * and sessions among all pending ones.
 *
 * $1 owner, $2 driver, $3 host, $4 limit, $5 lease in seconds, $6 turns to leave out, $7 the users of the turns that this
 * worker runs, $8 the only turns to take, or NULL, $9 may there be a suspect?
 */
const RANKED = `
    RECURSIVE start AS MATERIALIZED (
      SELECT gen_random_uuid() AS id
    ), above AS (
      SELECT (SELECT ${nextUser('>= start.id')} FROM start) AS user_id
      UNION ALL
      SELECT ${nextUser('> above.user_id')} FROM above WHERE above.user_id IS NOT NULL
    ), below AS (
      SELECT ${nextUser('IS NOT NULL')} AS user_id
      UNION ALL
      SELECT ${nextUser('> below.user_id')} FROM below WHERE below.user_id IS NOT NULL
    ), waiting AS MATERIALIZED (
      SELECT DISTINCT user_id FROM (
        (SELECT user_id FROM above WHERE user_id IS NOT NULL LIMIT ${USERS})
        UNION ALL
        (SELECT user_id FROM below WHERE user_id IS NOT NULL LIMIT ${USERS})) users
    ), found AS MATERIALIZED (
      (SELECT t.id, t.session_id, t.created_at, 0 AS expired, false AS suspect
       FROM turns t LEFT JOIN sandboxes b USING (session_id)
       WHERE t.status = 'pending' AND ${REACHABLE} AND t.id <> ALL ($6::uuid[])
       ORDER BY t.created_at LIMIT (SELECT $4 * 4))
      UNION
      (SELECT t.id, t.session_id, t.created_at, 0, false
       FROM waiting w CROSS JOIN LATERAL (
         SELECT s.id, s.current_turn FROM sessions s
         WHERE s.user_id = w.user_id AND s.status = 'pending'
         ORDER BY s.updated_at LIMIT (SELECT $4 + ${UNREACHABLE})) s
       CROSS JOIN LATERAL (
         SELECT t.id, t.session_id, t.created_at, t.status FROM turns t
         WHERE t.session_id = s.id AND t.turn_number = s.current_turn OFFSET 0) t
       LEFT JOIN sandboxes b ON b.session_id = s.id
       WHERE t.status = 'pending' AND ${REACHABLE} AND t.id <> ALL ($6::uuid[]))
      UNION
      (SELECT t.id, t.session_id, t.created_at, 1, t.claims > 0 AND NOT ${PROGRESSED}
       FROM turns t LEFT JOIN sandboxes b USING (session_id)
       WHERE ${EXPIRED} AND ${REACHABLE} AND t.id <> ALL ($6::uuid[]))
    ), allowed AS (
      SELECT * FROM (
        SELECT f.*, row_number() OVER (PARTITION BY f.suspect ORDER BY f.created_at, f.id) AS nth
        FROM found f WHERE $8::uuid[] IS NULL OR f.id = ANY ($8)) f
      WHERE NOT f.suspect OR ($9::boolean AND f.nth = 1)
    ), held AS (
      SELECT user_id, count(*) AS slots FROM unnest($7::uuid[]) AS h (user_id) GROUP BY user_id
    ), ranked AS MATERIALIZED (
      SELECT f.id, f.created_at, f.expired,
        coalesce(held.slots, 0) + row_number() OVER (
          PARTITION BY s.user_id ORDER BY f.expired DESC, f.created_at) AS place
      FROM allowed f JOIN sessions s ON s.id = f.session_id LEFT JOIN held USING (user_id)
      -- This is enough unless other workers claim some of them now; the next claim finds the rest.
      ORDER BY f.expired DESC, place, f.created_at LIMIT $4 * 4
    )`;

export const CLAIM = {
  name: 'turns-claim',
  timeoutMs: LEASE_ANSWER_MS,
  text: `
    WITH ${RANKED}, candidate AS (
      SELECT t.id, t.session_id, s.provider, s.user_id
      FROM ranked r
      JOIN turns t ON t.id = r.id
      JOIN sessions s ON s.id = t.session_id
      WHERE CASE t.status
        WHEN 'pending' THEN true WHEN 'running' THEN t.lease_expires_at <= now() END
      ORDER BY r.expired DESC, r.place, r.created_at
      LIMIT $4
      FOR UPDATE OF s, t SKIP LOCKED
    ), intent AS (
      ${recordSandboxes('candidate', { driver: '$2', host: '$3' })}
    ), running AS (
      UPDATE sessions s SET status = 'running', updated_at = now()
      FROM candidate c WHERE s.id = c.session_id AND CASE s.status WHEN 'pending' THEN true END
    )
    UPDATE turns t SET
      status = 'running',
      started_at = coalesce(t.started_at, now()),
      active_at = coalesce(t.active_at, now()),
      lease_owner = $1,
      lease_expires_at = now() + make_interval(secs => $5),
      fencing = t.fencing + 1,
      claims = CASE WHEN ${PROGRESSED} THEN 1 ELSE t.claims + 1 END,
      claim_mark = t.last_log_id + t.spool_offset
    FROM candidate c WHERE t.id = c.id
    RETURNING t.id, t.session_id, c.user_id, t.turn_number, t.prompt, t.timeout,
      (extract(epoch FROM t.started_at) * 1000)::float8 AS started_ms,
      t.fencing, t.claims, t.commit_seq, t.progress, t.spool_offset, t.spool_stdout, t.spool_stderr,
      t.last_log_id, c.provider, t.traceparent, t.first_output_id IS NOT NULL AS has_output,
      (extract(epoch FROM now() - t.created_at) * 1000)::float8 AS age_ms`,
};

/** The same turns, without taking them. Owner and lease are not used, but the parameters are the same. */
export const CLAIMABLE = {
  name: 'turns-claimable',
  timeoutMs: LEASE_ANSWER_MS,
  text: `
    WITH ${RANKED}
    SELECT id FROM ranked WHERE $1::text IS NOT NULL AND $5::float8 IS NOT NULL
    ORDER BY expired DESC, place, created_at LIMIT $4`,
};
