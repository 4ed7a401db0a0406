import { randomUUID } from 'node:crypto';
import type { DataSource } from 'typeorm';

/** Puts a new session of a new user on record, whose first turn may be claimed; for tests of the statements alone. */
export async function insertWaitingTurn(dataSource: DataSource): Promise<void> {
  const [user, agent, session] = [randomUUID(), randomUUID(), randomUUID()];
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
  await dataSource.query(
    `INSERT INTO sessions (id, user_id, agent_id, agent_version, provider, timeout, resources)
     VALUES ($1, $2, $3, 1, 'shell', 60, '[]')`,
    [session, user, agent],
  );
  await dataSource.query(
    `INSERT INTO turns (session_id, turn_number, prompt, timeout) VALUES ($1, 1, 'x', 60)`,
    [session],
  );
}
