import { Body, Controller, Get, HttpCode, Param, Post, Put } from '@nestjs/common';
import { ApiBearerAuth, ApiTags } from '@nestjs/swagger';
import { OwnerId } from '../common/owner.decorator.js';
import { CreateAgentDto, UpdateAgentDto } from './dto/agent-body.dto.js';
import { AgentListResponse, AgentResponse } from './dto/agent-response.dto.js';
import { AgentsService } from './agents.service.js';

@ApiTags('agents')
@ApiBearerAuth()
@Controller('agents')
export class AgentsController {
  constructor(private readonly agents: AgentsService) {}

  /** Creates an agent. */
  @Post()
  async create(@OwnerId() userId: string, @Body() body: CreateAgentDto): Promise<AgentResponse> {
    return AgentResponse.of(await this.agents.create(userId, body));
  }

  /** Lists the agents that are not archived, newest first. */
  @Get()
  async list(@OwnerId() userId: string): Promise<AgentListResponse> {
    return { data: (await this.agents.list(userId)).map((state) => AgentResponse.of(state)) };
  }

  /** Reads an agent, an archived one too. */
  @Get(':id')
  async get(@OwnerId() userId: string, @Param('id') id: string): Promise<AgentResponse> {
    return AgentResponse.of(await this.agents.get(userId, id));
  }

  /** Changes an agent. `metadata` is merged, lists are replaced as a whole. */
  @Put(':id')
  async update(
    @OwnerId() userId: string,
    @Param('id') id: string,
    @Body() body: UpdateAgentDto,
  ): Promise<AgentResponse> {
    return AgentResponse.of(await this.agents.update(userId, id, body));
  }

  /** Archives an agent: hidden from lists, still readable, never changed again. */
  @Post(':id/archive')
  @HttpCode(200)
  async archive(@OwnerId() userId: string, @Param('id') id: string): Promise<AgentResponse> {
    return AgentResponse.of(await this.agents.archive(userId, id));
  }

  /** Lists all versions of an agent, newest first. */
  @Get(':id/versions')
  async versions(@OwnerId() userId: string, @Param('id') id: string): Promise<AgentListResponse> {
    return {
      data: (await this.agents.versions(userId, id)).map((state) => AgentResponse.of(state)),
    };
  }
}
