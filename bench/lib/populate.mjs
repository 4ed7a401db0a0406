/**
 * Fills a database with the result of years of use, without running anything: finished sessions, agents and log rows.
 */
export async function populate(database, { sessions = 0, agents = 0, logEvents = 0, agentId }) {
  const { rows } = await database.query('SELECT user_id, version FROM agents WHERE id = $1', [
    agentId,
  ]);
  const { user_id: userId, version } = rows[0];
  await database.query(
    `WITH made AS (
       INSERT INTO agents (user_id, name, provider, model, system, skills, mcp_servers, metadata)
       SELECT $1, 'agent ' || n, 'shell', 'shell/bash', '', '[]', '[]', '{}' FROM generate_series(1, $2) n
       RETURNING id)
     INSERT INTO agent_versions (agent_id, version, snapshot)
     SELECT id, 1, '{"name":"a","provider":"shell","model":"shell/bash","system":"","skills":[],"mcpServers":[],"environmentId":null,"metadata":{}}' FROM made`,
    [userId, agents],
  );
  await database.query(
    `WITH made AS (
       INSERT INTO sessions (user_id, agent_id, agent_version, provider, status, timeout, resources, exit_code, created_at)
       SELECT $1, $2, $3, 'shell', 'completed', 3600, '[]', 0, now() - n * interval '1 second'
       FROM generate_series(1, $4) n
       RETURNING id)
     INSERT INTO turns (session_id, turn_number, prompt, timeout, status, exit_code, started_at, ended_at)
     SELECT id, 1, 'echo hi', 3600, 'completed', 0, now(), now() FROM made`,
    [userId, agentId, version, sessions],
  );
  if (logEvents > 0) await populateLog(database, logEvents);
  await database.query('VACUUM ANALYZE');
}

/** Copies existing rows to other sessions, so that this code does not depend on how rows are created. */
async function populateLog(database, events) {
  const { rows } = await database.query(
    `SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) AS columns FROM pg_attribute
     WHERE attrelid = 'event_log'::regclass AND attnum > 0 AND NOT attisdropped AND attname <> 'session_id'`,
  );
  const { columns } = rows[0];
  const found = await database.query('SELECT count(*)::int AS rows FROM event_log');
  const times = Math.ceil(events / found.rows[0].rows);
  await database.query(
    `INSERT INTO event_log (session_id, ${columns})
     SELECT c.session_id, ${columns
       .split(', ')
       .map((name) => `e.${name}`)
       .join(', ')}
     FROM event_log e, (SELECT n, gen_random_uuid() AS session_id FROM generate_series(1, $1) n) c`,
    [times],
  );
}
