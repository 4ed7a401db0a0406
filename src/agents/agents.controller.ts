import type { Readable } from 'node:stream';
import { Body, Controller, Get, HttpCode, Param, Post, Put } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import { listBody } from '../common/lists/list-body.js';
import {
  LIST_REFUSALS,
  ListAnswer,
  ListOf,
  type ListRequest,
} from '../common/lists/list-request.js';
import { Operation } from '../common/openapi/operation.decorator.js';
import { CurrentUser } from '../common/request-decorators.js';
import {
  IdempotencyKey,
  KEY_MALFORMED,
  KEY_REUSED,
  TakesIdempotencyKey,
} from '../idempotency/repeatable-requests.js';
import {
  CreateAgentDto,
  UpdateAgentDto,
  AgentListResponse,
  AgentResponse,
  CREATE_AGENT_EXAMPLES,
  UPDATE_AGENT_EXAMPLES,
} from './dto/agent.dto.js';
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
   * @remarks Its environment must belong to the same user. Version 1 is stored in the history.
   */
  @Operation({
    id: 'createAgent',
    body: { type: CreateAgentDto, examples: CREATE_AGENT_EXAMPLES },
    refusals: {
      400: [UNKNOWN_PROVIDER, KEY_MALFORMED],
      404: ['Environment not found'],
      422: [MODEL_MISMATCH, KEY_REUSED],
    },
  })
  @Post()
  @TakesIdempotencyKey()
  async create(
    @CurrentUser() userId: string,
    @Body() body: CreateAgentDto,
    @IdempotencyKey() key?: string,
  ): Promise<AgentResponse> {
    return AgentResponse.of(await this.agents.create(userId, body, key));
  }

  /** Lists the agents that are not archived, newest first. */
  @Operation({ id: 'listAgents', refusals: { 400: LIST_REFUSALS } })
  @ListAnswer({ type: AgentListResponse, after: 'The id of the last item that was received.' })
  @Get()
  async list(@ListOf() list: ListRequest): Promise<string | Readable> {
    const pages = await this.agents.list(list.userId, list);
    return listBody(list, pages, (state) => AgentResponse.of(state));
  }

  /** Reads an agent, which may be archived. */
  @Operation({ id: 'getAgent', refusals: { 404: ['Agent not found'] } })
  @Get(':id')
  async get(@CurrentUser() userId: string, @Param('id') id: string): Promise<AgentResponse> {
    return AgentResponse.of(await this.agents.get(userId, id));
  }

  /**
   * Changes an agent.
   * @remarks `metadata` is merged, lists are replaced as a whole, and members that are left out stay. If a value
   * changes, the version increases by one and is stored in the history; otherwise nothing happens. Existing sessions
   * keep the version that they were created with.
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
    @CurrentUser() userId: string,
    @Param('id') id: string,
    @Body() body: UpdateAgentDto,
  ): Promise<AgentResponse> {
    return AgentResponse.of(await this.agents.update(userId, id, body));
  }

  /** Archives an agent for good: it is hidden from lists, still readable, and never changed again. */
  @Operation({
    id: 'archiveAgent',
    refusals: { 404: ['Agent not found'], 409: ['Agent is already archived'] },
  })
  @Post(':id/archive')
  @HttpCode(200)
  async archive(@CurrentUser() userId: string, @Param('id') id: string): Promise<AgentResponse> {
    return AgentResponse.of(await this.agents.archive(userId, id));
  }

  /** Lists all versions of an agent, newest first. */
  @Operation({
    id: 'listAgentVersions',
    refusals: { 400: LIST_REFUSALS, 404: ['Agent not found'] },
  })
  @ListAnswer({
    type: AgentListResponse,
    after: 'The version number of the last item that was received.',
  })
  @Get(':id/versions')
  async versions(@ListOf() list: ListRequest, @Param('id') id: string): Promise<string | Readable> {
    const pages = await this.agents.versions(list.userId, id, list);
    return listBody(list, pages, (state) => AgentResponse.of(state));
  }
}
