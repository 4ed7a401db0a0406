import { Injectable } from '@nestjs/common';
import { DataSource } from 'typeorm';
import { isUuid } from '../common/storable.js';
import { AppConfig } from '../config/app-config.js';
import { Sql, type SqlExecutor } from '../database/sql.js';
import { VersionedRows } from '../database/versioned-rows.js';
import { type AgentSnapshot, AgentVersionEntity, AgentEntity } from './entities/agent.entity.js';

/** The fields of an agent that a new session stores. */
export interface AgentPin {
  id: string;
  version: number;
  provider: string;
  model: string;
  system: string;
  environmentId: string | null;
}

const FIND_PIN = {
  name: 'agents-find-pin',
  text: `
    SELECT id, version, provider, model, system, environment_id AS "environmentId",
           archived_at IS NOT NULL AS archived
      FROM agents WHERE id = $1 AND user_id = $2`,
};
const LOCK_ACTIVE = {
  name: 'agents-lock-active',
  text: 'SELECT FROM agents WHERE id = $1 AND archived_at IS NULL FOR SHARE',
};

/** Agents and their versions in the database. */
@Injectable()
export class AgentsRepository extends VersionedRows<
  AgentEntity,
  AgentSnapshot,
  'mcpSecretsSealed'
> {
  constructor(dataSource: DataSource, sql: Sql, config: AppConfig) {
    const tables = {
      resource: AgentEntity,
      table: 'agents',
      version: AgentVersionEntity,
      versionTable: 'agent_versions',
      versionKey: 'agent_id',
      columns: {
        name: 'text',
        provider: 'text',
        model: 'text',
        system: 'text',
        skills: 'jsonb',
        mcp_servers: 'jsonb',
        environment_id: 'uuid',
        metadata: 'jsonb',
      },
      sealed: 'mcp_secrets_sealed',
    };
    super(tables, dataSource, sql, config.storedBytesPerUser);
  }

  async findPin(
    userId: string,
    id: string,
  ): Promise<(AgentPin & { archived: boolean }) | undefined> {
    if (!isUuid(id)) return undefined;
    const [row] = await this.sql.query<AgentPin & { archived: boolean }>(FIND_PIN, [id, userId]);
    return row;
  }

  /** Keeps an agent from being archived until the transaction ends. @returns whether it was active. */
  async lockActiveUnscoped(sql: SqlExecutor, id: string): Promise<boolean> {
    return (await sql.query(LOCK_ACTIVE, [id])).length > 0;
  }
}
