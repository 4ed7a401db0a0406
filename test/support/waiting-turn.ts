import { randomUUID } from 'node:crypto';
import type { DataSource } from 'typeorm';

export interface UserWithAgent {
  id: string;
  agentId: string;
}

/** Puts a new user with an agent on record; for tests of the statements alone. */
export async function insertUserWithAgent(dataSource: DataSource): Promise<UserWithAgent> {
  const [user, agent] = [randomUUID(), randomUUID()];
  await dataSource.query('INSERT INTO users (id, name) VALUES ($1::uuid, $1::text)', [user]);
  await dataSource.query(
    `INSERT INTO agents (id, user_id, name, provider, model, system, skills, mcp_servers, metadata)
     VALUES ($1, $2, 'a', 'shell', 'shell/bash', '', '[]', '[]', '{}')`,
    [agent, user],
  );
  await dataSource.query(
    `INSERT INTO agent_versions (agent_id, version, snapshot) VALUES ($1, 1, '{}')`,
    [agent],
  );
  return { id: user, agentId: agent };
}

/**
 * Puts sessions on record whose first turns may be claimed.
 * @returns the sessions' ids, the one that has waited the longest first.
 */
export async function insertWaitingTurns(
  dataSource: DataSource,
  { id, agentId }: UserWithAgent,
  count: number,
): Promise<string[]> {
  const rows: { id: string }[] = await dataSource.query(
    `WITH session AS (
       INSERT INTO sessions (user_id, agent_id, agent_version, provider, timeout, resources,
         created_at, updated_at)
       SELECT $1, $2, 1, 'shell', 60, '[]', at, at
       FROM (SELECT now() - make_interval(secs => n / 1000.0) AS at
             FROM generate_series($3::int, 1, -1) n) times
       RETURNING id, created_at
     ), turn AS (
       INSERT INTO turns (session_id, turn_number, prompt, timeout, created_at)
       SELECT id, 1, 'x', 60, created_at FROM session
     )
     SELECT id FROM session ORDER BY created_at`,
    [id, agentId, count],
  );
  return rows.map((row) => row.id);
}

/** Puts a new session of a new user on record, whose first turn may be claimed. */
export async function insertWaitingTurn(dataSource: DataSource): Promise<void> {
  await insertWaitingTurns(dataSource, await insertUserWithAgent(dataSource), 1);
}
