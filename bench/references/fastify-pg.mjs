// Fastify and node-postgres with only the essential statements of the requests: no validation, no rules, no users.
import { randomUUID } from 'node:crypto';
import fastify from 'fastify';
import { Pool } from 'pg';
import { serve } from '../lib/rpc.mjs';

const SELECT = {
  name: 'select',
  text: `SELECT id, name, provider, model, system, skills, mcp_servers, environment_id, metadata, version,
           created_at::text, updated_at::text, archived_at::text
         FROM agents WHERE id = $1 AND user_id = $2`,
};
const INSERT_AGENT = `
  INSERT INTO agents (id, user_id, name, provider, model, system, skills, mcp_servers, metadata)
  VALUES ($1, $2, $3, $4, $5, $6, '[]', '[]', $7)
  RETURNING id, name, provider, model, system, skills, mcp_servers, environment_id, metadata, version,
    created_at::text, updated_at::text, archived_at::text`;
const INSERT = {
  name: 'insert',
  text: `WITH agent AS (${INSERT_AGENT}), version AS (
      INSERT INTO agent_versions (agent_id, version, snapshot) VALUES ($1, 1, $8))
    SELECT * FROM agent`,
};

serve({
  async start({ url }) {
    const pool = new Pool({ connectionString: url, max: 12 });
    const { rows } = await pool.query('SELECT id FROM users LIMIT 1');
    const owner = rows[0].id;
    const app = fastify();
    const get = async (request) => {
      const found = await pool.query({ ...SELECT, values: [request.params.id, owner] });
      return { type: 'agent', ...found.rows[0] };
    };
    app.route({ method: 'GET', url: '/agents/:id', handler: get });
    const post = async (request, reply) => {
      const { name, provider, model, system, metadata } = request.body;
      const snapshot = {
        name,
        provider,
        model,
        system,
        skills: [],
        mcpServers: [],
        environmentId: null,
        metadata,
      };
      const values = [randomUUID(), owner, name, provider, model, system, metadata, snapshot];
      const made = await pool.query({ ...INSERT, values });
      return reply.code(201).send({ type: 'agent', ...made.rows[0] });
    };
    app.route({ method: 'POST', url: '/agents', handler: post });
    return app.listen({ port: 0, host: '127.0.0.1' });
  },
});
