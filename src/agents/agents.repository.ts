import { Injectable } from '@nestjs/common';
import { DataSource, type EntityManager, IsNull } from 'typeorm';
import { isUuid } from '../common/uuid.js';
import { Sql } from '../database/sql.js';
import { type AgentSnapshot, AgentVersionEntity } from './entities/agent-version.entity.js';
import { AgentEntity } from './entities/agent.entity.js';

/** A snapshot, and its tool servers' secrets sealed once for the agent's row and once for the version's. */
export interface AgentContent {
  snapshot: AgentSnapshot;
  sealed: { agent: string | null; version: string | null };
}

/** What a new session takes from an agent. */
export interface AgentPin {
  id: string;
  version: number;
  provider: string;
  model: string;
  system: string;
  environmentId: string | null;
}

const COLUMNS = `
  id, user_id AS "userId", name, provider, model, system, skills, mcp_servers AS "mcpServers",
  mcp_secrets_sealed AS "mcpSecretsSealed", environment_id AS "environmentId", metadata, version,
  created_at AS "createdAt", updated_at AS "updatedAt", archived_at AS "archivedAt"`;
const FIND = {
  name: 'agents-find',
  text: `SELECT ${COLUMNS} FROM agents WHERE id = $1 AND user_id = $2`,
};
const INSERT = {
  name: 'agents-insert',
  text: `
    WITH agent AS (
      INSERT INTO agents (id, user_id, name, provider, model, system, skills, mcp_servers,
        mcp_secrets_sealed, environment_id, metadata)
      SELECT $1, $2, s.name, s.provider, s.model, s.system, s.skills, s."mcpServers", $4,
        s."environmentId", s.metadata
      FROM jsonb_to_record($3) AS s (name text, provider text, model text, system text, skills jsonb,
        "mcpServers" jsonb, "environmentId" uuid, metadata jsonb)
      RETURNING *
    ), first_version AS (
      INSERT INTO agent_versions (agent_id, version, snapshot, mcp_secrets_sealed)
      VALUES ($1, 1, $3, $5)
    )
    SELECT ${COLUMNS} FROM agent`,
};
const FIND_PIN = {
  name: 'agents-find-pin',
  text: `
    SELECT id, version, provider, model, system, environment_id AS "environmentId",
           archived_at IS NOT NULL AS archived
      FROM agents WHERE id = $1 AND user_id = $2`,
};
const FIND_VERSION = {
  name: 'agents-find-version',
  text: `
    SELECT snapshot, mcp_secrets_sealed AS "mcpSecretsSealed"
      FROM agent_versions WHERE agent_id = $1 AND version = $2`,
};

type AgentRow = AgentEntity & Record<string, unknown>;

/** Agents and their versions in the database. An id that is no UUID is like one that is not there. */
@Injectable()
export class AgentsRepository {
  constructor(
    private readonly dataSource: DataSource,
    private readonly sql: Sql,
  ) {}

  async find(userId: string, id: string): Promise<AgentEntity | undefined> {
    if (!isUuid(id)) return undefined;
    return (await this.sql.query<AgentRow>(FIND, [id, userId]))[0];
  }

  /** Active ones, newest first. */
  async list(userId: string): Promise<AgentEntity[]> {
    return this.manager.find(AgentEntity, {
      where: { userId, archivedAt: IsNull() },
      order: { createdAt: 'DESC', id: 'DESC' },
    });
  }

  /** Newest first. */
  async listVersionsUnscoped(agentId: string): Promise<AgentVersionEntity[]> {
    return this.manager.find(AgentVersionEntity, {
      where: { agentId },
      order: { version: 'DESC' },
    });
  }

  /** Inserts version 1 and its snapshot. */
  async create(userId: string, id: string, content: AgentContent): Promise<AgentEntity> {
    const { snapshot, sealed } = content;
    const [row] = await this.sql.query<AgentRow>(INSERT, [
      id,
      userId,
      JSON.stringify(snapshot),
      sealed.agent,
      sealed.version,
    ]);
    if (!row) throw new Error('An agent was inserted and not returned');
    return row;
  }

  /** Writes version N+1 and its snapshot if the version still is N and the agent active. */
  async replace(
    current: Pick<AgentEntity, 'id' | 'userId' | 'version'>,
    content: AgentContent,
  ): Promise<AgentEntity | undefined> {
    const { id, userId, version } = current;
    return this.dataSource.transaction(async (manager) => {
      const { affected } = await manager.update(
        AgentEntity,
        { id, userId, version, archivedAt: IsNull() },
        { ...columnsOf(content), version: version + 1, updatedAt: () => 'now()' },
      );
      return affected ? snapshotAndRead(manager, id, version + 1, content) : undefined;
    });
  }

  /** @returns whether it was active until now. */
  async archive(userId: string, id: string): Promise<boolean> {
    const { affected } = await this.manager.update(
      AgentEntity,
      { id, userId, archivedAt: IsNull() },
      { archivedAt: () => 'now()', updatedAt: () => 'now()' },
    );
    return affected === 1;
  }

  async findPin(
    userId: string,
    id: string,
  ): Promise<(AgentPin & { archived: boolean }) | undefined> {
    if (!isUuid(id)) return undefined;
    const [row] = await this.sql.query<AgentPin & { archived: boolean }>(FIND_PIN, [id, userId]);
    return row;
  }

  async findVersionUnscoped(
    id: string,
    version: number,
  ): Promise<{ snapshot: AgentSnapshot; mcpSecretsSealed: string | null } | undefined> {
    const [row] = await this.sql.query<{
      snapshot: AgentSnapshot;
      mcpSecretsSealed: string | null;
    }>(FIND_VERSION, [id, version]);
    return row;
  }

  private get manager(): EntityManager {
    return this.dataSource.manager;
  }
}

function columnsOf({ snapshot, sealed }: AgentContent) {
  return { ...snapshot, mcpSecretsSealed: sealed.agent };
}

/** In one transaction with the row, so that `now()` of both is the same moment. */
async function snapshotAndRead(
  manager: EntityManager,
  id: string,
  version: number,
  { snapshot, sealed }: AgentContent,
): Promise<AgentEntity> {
  await manager.insert(AgentVersionEntity, {
    agentId: id,
    version,
    snapshot,
    mcpSecretsSealed: sealed.version,
  });
  return manager.findOneByOrFail(AgentEntity, { id });
}
