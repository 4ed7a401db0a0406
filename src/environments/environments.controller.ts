import { Body, Controller, Delete, Get, HttpCode, Param, Post, Put } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import { DetailResponse } from '../common/dto/detail-response.dto.js';
import { Operation } from '../common/openapi/operation.decorator.js';
import { OwnerId } from '../common/owner.decorator.js';
import { CreateEnvironmentDto, UpdateEnvironmentDto } from './dto/environment-body.dto.js';
import { EnvironmentListResponse, EnvironmentResponse } from './dto/environment-response.dto.js';
import {
  CREATE_ENVIRONMENT_EXAMPLES,
  UPDATE_ENVIRONMENT_EXAMPLES,
} from './environments.examples.js';
import { EnvironmentsService } from './environments.service.js';

const NOT_FOUND = ['Environment not found'];

@ApiTags('environments')
@Controller('environments')
export class EnvironmentsController {
  constructor(private readonly environments: EnvironmentsService) {}

  /** Creates an environment. */
  @Operation({
    id: 'createEnvironment',
    body: { type: CreateEnvironmentDto, examples: CREATE_ENVIRONMENT_EXAMPLES },
  })
  @Post()
  async create(
    @OwnerId() userId: string,
    @Body() body: CreateEnvironmentDto,
  ): Promise<EnvironmentResponse> {
    return EnvironmentResponse.of(await this.environments.create(userId, body));
  }

  /** Lists the environments that are not archived, newest first. */
  @Operation({ id: 'listEnvironments' })
  @Get()
  async list(@OwnerId() userId: string): Promise<EnvironmentListResponse> {
    return {
      data: (await this.environments.list(userId)).map((state) => EnvironmentResponse.of(state)),
    };
  }

  /** Reads an environment, an archived one too. */
  @Operation({ id: 'getEnvironment', refusals: { 404: NOT_FOUND } })
  @Get(':id')
  async get(@OwnerId() userId: string, @Param('id') id: string): Promise<EnvironmentResponse> {
    return EnvironmentResponse.of(await this.environments.get(userId, id));
  }

  /**
   * Changes an environment.
   * @remarks What is left out stays; `env_vars` and lists are replaced as a whole. If a value changes, the version grows by
   * one and is stored in the history; if none does, nothing happens. Sessions that exist keep the version that they were
   * created with.
   */
  @Operation({
    id: 'updateEnvironment',
    body: { type: UpdateEnvironmentDto, examples: UPDATE_ENVIRONMENT_EXAMPLES },
    refusals: {
      404: NOT_FOUND,
      409: ['Cannot update an archived environment', 'Version mismatch: expected 3, got 2'],
    },
  })
  @Put(':id')
  async update(
    @OwnerId() userId: string,
    @Param('id') id: string,
    @Body() body: UpdateEnvironmentDto,
  ): Promise<EnvironmentResponse> {
    return EnvironmentResponse.of(await this.environments.update(userId, id, body));
  }

  /** Archives an environment: hidden from lists, still readable, never changed again. There is no way back. */
  @Operation({
    id: 'archiveEnvironment',
    refusals: { 404: NOT_FOUND, 409: ['Environment is already archived'] },
  })
  @Post(':id/archive')
  @HttpCode(200)
  async archive(@OwnerId() userId: string, @Param('id') id: string): Promise<EnvironmentResponse> {
    return EnvironmentResponse.of(await this.environments.archive(userId, id));
  }

  /**
   * Removes an environment that no session ever referenced, with its history.
   * @remarks Active or archived. A session that was deleted since still counts.
   */
  @Operation({
    id: 'deleteEnvironment',
    refusals: { 404: NOT_FOUND, 409: ['Cannot delete environment with existing sessions'] },
  })
  @Delete(':id/delete')
  async delete(@OwnerId() userId: string, @Param('id') id: string): Promise<DetailResponse> {
    await this.environments.delete(userId, id);
    return { detail: 'Environment deleted' };
  }

  /** Lists all versions of an environment, newest first. */
  @Operation({ id: 'listEnvironmentVersions', refusals: { 404: NOT_FOUND } })
  @Get(':id/versions')
  async versions(
    @OwnerId() userId: string,
    @Param('id') id: string,
  ): Promise<EnvironmentListResponse> {
    return {
      data: (await this.environments.versions(userId, id)).map((state) =>
        EnvironmentResponse.of(state),
      ),
    };
  }
}
