import { ApiSchema, ApiProperty } from '@nestjs/swagger';
import { IsInt, IsString, MaxLength, MinLength } from 'class-validator';
import { IfPresent, IfPresentAndNotNull } from '../../common/http/validation.pipe.js';
import { Integer, OneOf, Timestamp, Uuid } from '../../common/openapi/decorators.js';
import { Items, Located, Id, Unique } from '../../common/validation/dto.js';
import { StringMap } from '../../common/validation/maps.js';
import { McpServerDto, mcpServerDtoOf } from './mcp-server.dto.js';
import {
  SkillDto,
  skillDtoOf,
  skillsProblems,
  type GitSkillDto,
  type InlineSkillDto,
} from './skill.dto.js';
import { PageResponse } from '../../common/openapi/error-responses.dto.js';
import type { AgentSnapshot } from '../entities/agent.entity.js';

/** How many labels an agent may have; also after a merge. */
export const MAX_METADATA_KEYS = 64;

/** The optional members that `POST` and `PUT /agents` share. */
class AgentOptionsDto {
  /** The system prompt, which precedes the first turn's prompt. Default `""`. */
  @IfPresent()
  @MaxLength(1_048_576)
  @IsString()
  system?: string;

  /** Extra knowledge, with names that differ. A list replaces the whole one. Default `[]`. */
  @IfPresent()
  @Items(skillDtoOf, 64)
  @Located(skillsProblems)
  skills?: SkillDto[];

  /**
   * Tool servers, with names that differ. A list replaces the whole one; a server that is sent back as it was read keeps
   * its secrets. Default `[]`.
   */
  @IfPresent()
  @Items(mcpServerDtoOf, 64)
  @Unique('name')
  mcp_servers?: McpServerDto[];

  /** The default environment of sessions; one of the user's own. `null` for none. */
  @IfPresentAndNotNull()
  @Id({ nullable: true })
  environment_id?: string | null;

  /**
   * Labels, at most 64 also after a merge, with names of at most 128 characters. On `PUT` they are merged: a text adds
   * or replaces a label, an empty text deletes it, and labels that are not submitted stay.
   */
  @IfPresent()
  @StringMap({ maxSize: MAX_METADATA_KEYS, maxKeyLength: 128, maxValueLength: 4_096 })
  metadata?: Record<string, string>;
}

/** Body of `POST /agents`. */
@ApiSchema({ name: 'CreateAgentRequest', description: 'A new agent.' })
export class CreateAgentDto extends AgentOptionsDto {
  /** @example "Greeter" */
  @MaxLength(255)
  @MinLength(1)
  @IsString()
  name!: string;

  /**
   * Who runs the turns: `anthropic` (or `claude`), `openai` (or `codex`), `google` (or `gemini`), `opencode`, or
   * `shell`, which runs prompts as bash scripts. An unknown one is a 400. Which ones are installed depends on the
   * service.
   * @example "shell"
   */
  @MaxLength(64)
  @IsString()
  provider!: string;

  /**
   * A model of the provider. It begins with one of the provider's prefixes, or with the provider's name and a slash.
   * @example "shell/bash"
   */
  @MaxLength(255)
  @IsString()
  model!: string;
}

/** Body of `PUT /agents/{id}`. What is left out stays as it is. */
@ApiSchema({
  name: 'UpdateAgentRequest',
  description: 'A change of an agent. What is left out stays as it is.',
})
export class UpdateAgentDto extends AgentOptionsDto {
  /** The version that the change starts from. */
  @Integer({ example: 1 })
  @IsInt()
  version!: number;

  @IfPresent()
  @MaxLength(255)
  @MinLength(1)
  @IsString()
  name?: string;

  @IfPresent()
  @MaxLength(64)
  @IsString()
  provider?: string;

  /** Must be one of the provider's. */
  @IfPresent()
  @MaxLength(255)
  @IsString()
  model?: string;
}

/** Example request bodies for the OpenAPI document. */
export const CREATE_AGENT_EXAMPLES = {
  'A bash script: needs no key': { name: 'Greeter', provider: 'shell', model: 'shell/bash' },
  'Claude Code with a tool server and a skill': {
    name: 'Release manager',
    provider: 'anthropic',
    model: 'claude-sonnet-4-5',
    system: 'You prepare releases. Never push to main.',
    mcp_servers: [
      {
        type: 'http',
        name: 'tickets',
        url: 'https://mcp.example.com/tickets',
        headers: { Authorization: 'Bearer secret' },
      },
      { type: 'stdio', name: 'clock', command: 'npx', args: ['-y', '@example/clock-mcp'] },
    ],
    skills: [{ name: 'release-notes', content: '# Release notes\n\nOne line per change.' }],
    metadata: { team: 'growth' },
  },
};

export const UPDATE_AGENT_EXAMPLES = {
  'Another prompt, one label changed and one deleted': {
    version: 1,
    system: 'Be brief.',
    metadata: { env: 'production', team: '' },
  },
};

/** One version of an agent, with its id and times as clients see them. */
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
@OneOf(() => ({
  stdio: StdioMcpServerResponse,
  http: RemoteMcpServerResponse,
  sse: RemoteMcpServerResponse,
}))
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
  /** ISO 8601, UTC, microseconds. In the list of versions: when the version was written. */
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
@ApiSchema({ name: 'AgentList', description: 'All items, or as many as requested.' })
export class AgentListResponse extends PageResponse {
  data!: AgentResponse[];
}
