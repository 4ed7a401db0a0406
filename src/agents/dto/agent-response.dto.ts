import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import { OneOf } from '../../common/openapi/one-of.decorator.js';
import { Integer, Timestamp, Uuid } from '../../common/openapi/properties.js';
import type { AgentSnapshot } from '../entities/agent-version.entity.js';
import { type GitSkillDto, type InlineSkillDto, SkillDto } from './skill.dto.js';

/** What an agent holds in one version, and where it belongs. Timestamps are as clients see them. */
export interface AgentState extends AgentSnapshot {
  id: string;
  version: number;
  createdAt: string;
  updatedAt: string;
  archivedAt: string | null;
}

/** A tool server as it is shown. */
@ApiSchema({
  name: 'McpServer',
  description: 'A tool server as it is shown: the values of its secrets are never returned.',
})
@OneOf({
  members: () => [StdioMcpServerResponse, RemoteMcpServerResponse],
  discriminator: {
    propertyName: 'type',
    mapping: () => ({
      stdio: StdioMcpServerResponse,
      http: RemoteMcpServerResponse,
      sse: RemoteMcpServerResponse,
    }),
  },
})
class McpServerResponse {}

/** A tool server that runs in the sandbox. */
@ApiSchema({ name: 'StdioMcpServer', description: 'A tool server that runs in the sandbox.' })
export class StdioMcpServerResponse {
  type!: 'stdio';
  name!: string;
  command!: string;
  args!: string[];
  /** The names of `env`, sorted. Values are never returned. */
  env_keys!: string[];
}

/** A tool server that is reached over HTTP. */
@ApiSchema({ name: 'RemoteMcpServer', description: 'A tool server that is reached over HTTP.' })
export class RemoteMcpServerResponse {
  type!: 'http' | 'sse';
  name!: string;
  url!: string;
  /** The names of `headers`, sorted. Values are never returned. */
  header_keys!: string[];
}

/** An agent: a template for sessions. */
@ApiSchema({ name: 'Agent', description: 'An agent: a template for sessions.' })
export class AgentResponse {
  @Uuid()
  id!: string;
  /** Always `agent`. */
  @ApiProperty()
  type!: 'agent';
  /** @example "Greeter" */
  @ApiProperty()
  name!: string;
  /**
   * As it was submitted.
   * @example "shell"
   */
  @ApiProperty()
  provider!: string;
  /** @example "shell/bash" */
  @ApiProperty()
  model!: string;
  /** The system prompt. */
  @ApiProperty()
  system!: string;
  @ApiProperty({ type: [SkillDto] })
  skills!: (InlineSkillDto | GitSkillDto)[];
  @ApiProperty({ type: [McpServerResponse] })
  mcp_servers!: (StdioMcpServerResponse | RemoteMcpServerResponse)[];
  /** The default environment of sessions. */
  @Uuid({ nullable: true })
  environment_id!: string | null;
  /** @example { "team": "growth" } */
  @ApiProperty()
  metadata!: Record<string, string>;
  /** Starts at 1 and grows by one with each change. */
  @Integer({ minimum: 1, example: 1 })
  version!: number;
  /** ISO 8601, UTC, microseconds. */
  @Timestamp()
  created_at!: string;
  /** When this version was written, or the agent was archived. */
  @Timestamp()
  updated_at!: string;
  /** `null` while the agent is active. */
  @Timestamp({ nullable: true })
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

/** A list of agents or of versions of one. */
@ApiSchema({ name: 'AgentList', description: 'All of them: there are no pages.' })
export class AgentListResponse {
  data!: AgentResponse[];
}
