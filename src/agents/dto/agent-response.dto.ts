import type { AgentSnapshot } from '../entities/agent-version.entity.js';
import { GitSkillDto, InlineSkillDto } from './skill.dto.js';

/** What an agent holds in one version, and where it belongs. Timestamps are as clients see them. */
export interface AgentState extends AgentSnapshot {
  id: string;
  version: number;
  createdAt: string;
  updatedAt: string;
  archivedAt: string | null;
}

/** A tool server that runs in the sandbox. */
export class StdioMcpServerResponse {
  type!: 'stdio';
  name!: string;
  command!: string;
  args!: string[];
  /** The names of `env`, sorted. Values are never returned. */
  env_keys!: string[];
}

/** A tool server that is reached over HTTP. */
export class RemoteMcpServerResponse {
  type!: 'http' | 'sse';
  name!: string;
  url!: string;
  /** The names of `headers`, sorted. Values are never returned. */
  header_keys!: string[];
}

/** An agent: a template for sessions. */
export class AgentResponse {
  id!: string;
  /** Always `agent`. */
  type!: 'agent';
  name!: string;
  /** As it was submitted. */
  provider!: string;
  model!: string;
  system!: string;
  skills!: (InlineSkillDto | GitSkillDto)[];
  mcp_servers!: (StdioMcpServerResponse | RemoteMcpServerResponse)[];
  environment_id!: string | null;
  metadata!: Record<string, string>;
  /** Starts at 1 and grows by one with each change. */
  version!: number;
  /** ISO 8601, UTC, microseconds. */
  created_at!: string;
  /** When this version was written, or the agent was archived. */
  updated_at!: string;
  /** `null` while the agent is active. */
  archived_at!: string | null;

  static of(state: AgentState): AgentResponse {
    return {
      id: state.id,
      type: 'agent',
      name: state.name,
      provider: state.provider,
      model: state.model,
      system: state.system,
      skills: state.skills,
      mcp_servers: state.mcpServers,
      environment_id: state.environmentId,
      metadata: state.metadata,
      version: state.version,
      created_at: state.createdAt,
      updated_at: state.updatedAt,
      archived_at: state.archivedAt,
    };
  }
}

export class AgentListResponse {
  data!: AgentResponse[];
}
