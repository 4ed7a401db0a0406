import { Body, Controller, Get, HttpCode, Param, Post, Put } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import { Operation } from '../common/openapi/operation.decorator.js';
import { OwnerId } from '../common/owner.decorator.js';
import { CreateAgentDto, UpdateAgentDto } from './dto/agent-body.dto.js';
import { AgentListResponse, AgentResponse } from './dto/agent-response.dto.js';
import { CREATE_AGENT_EXAMPLES, UPDATE_AGENT_EXAMPLES } from './agents.examples.js';
import { AgentsService } from './agents.service.js';

const MODEL_MISMATCH =
  'Model "gpt-5" does not match provider "shell": expected a model that begins with shell/';
const UNKNOWN_PROVIDER = 'Unknown provider: "acme"';

@ApiTags('agents')
@Controller('agents')
export class AgentsController {
  constructor(private readonly agents: AgentsService) {}

  /**
   * Creates an agent.
   * @remarks Its environment must be one of the user's own. Version 1 is stored in the history.
   */
  @Operation({
    id: 'createAgent',
    body: { type: CreateAgentDto, examples: CREATE_AGENT_EXAMPLES },
    refusals: {
      400: [UNKNOWN_PROVIDER],
      404: ['Environment not found'],
      422: [MODEL_MISMATCH],
    },
  })
  @Post()
  async create(@OwnerId() userId: string, @Body() body: CreateAgentDto): Promise<AgentResponse> {
    return AgentResponse.of(await this.agents.create(userId, body));
  }

  /** Lists the agents that are not archived, newest first. */
  @Operation({ id: 'listAgents' })
  @Get()
  async list(@OwnerId() userId: string): Promise<AgentListResponse> {
    return { data: (await this.agents.list(userId)).map((state) => AgentResponse.of(state)) };
  }

  /** Reads an agent, an archived one too. */
  @Operation({ id: 'getAgent', refusals: { 404: ['Agent not found'] } })
  @Get(':id')
  async get(@OwnerId() userId: string, @Param('id') id: string): Promise<AgentResponse> {
    return AgentResponse.of(await this.agents.get(userId, id));
  }

  /**
   * Changes an agent.
   * @remarks `metadata` is merged, lists are replaced as a whole, what is left out stays. If a value changes, the version
   * grows by one and is stored in the history; if none does, nothing happens. Sessions that exist keep the version that
   * they were created with.
   */
  @Operation({
    id: 'updateAgent',
    body: { type: UpdateAgentDto, examples: UPDATE_AGENT_EXAMPLES },
    refusals: {
      400: [UNKNOWN_PROVIDER],
      404: ['Agent not found', 'Environment not found'],
      409: ['Cannot update an archived agent', 'Version mismatch: expected 3, got 2'],
      422: [MODEL_MISMATCH],
    },
  })
  @Put(':id')
  async update(
    @OwnerId() userId: string,
    @Param('id') id: string,
    @Body() body: UpdateAgentDto,
  ): Promise<AgentResponse> {
    return AgentResponse.of(await this.agents.update(userId, id, body));
  }

  /** Archives an agent: hidden from lists, still readable, never changed again. There is no way back. */
  @Operation({
    id: 'archiveAgent',
    refusals: { 404: ['Agent not found'], 409: ['Agent is already archived'] },
  })
  @Post(':id/archive')
  @HttpCode(200)
  async archive(@OwnerId() userId: string, @Param('id') id: string): Promise<AgentResponse> {
    return AgentResponse.of(await this.agents.archive(userId, id));
  }

  /** Lists all versions of an agent, newest first. */
  @Operation({ id: 'listAgentVersions', refusals: { 404: ['Agent not found'] } })
  @Get(':id/versions')
  async versions(@OwnerId() userId: string, @Param('id') id: string): Promise<AgentListResponse> {
    return {
      data: (await this.agents.versions(userId, id)).map((state) => AgentResponse.of(state)),
    };
  }
}
