import type { Readable } from 'node:stream';
import { Body, Controller, Delete, Get, HttpCode, Param, Post, Put } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import { DetailResponse } from '../common/openapi/error-responses.dto.js';
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
  CreateEnvironmentDto,
  UpdateEnvironmentDto,
  EnvironmentListResponse,
  EnvironmentResponse,
  EnvironmentWithBuildResponse,
  CREATE_ENVIRONMENT_EXAMPLES,
  UPDATE_ENVIRONMENT_EXAMPLES,
} from './dto/environment.dto.js';
import { EnvironmentBuilds } from './environment-builds.js';
import { EnvironmentsService } from './environments.service.js';

const NOT_FOUND = ['Environment not found'];

@ApiTags('environments')
@Controller('environments')
export class EnvironmentsController {
  constructor(
    private readonly environments: EnvironmentsService,
    private readonly builds: EnvironmentBuilds,
  ) {}

  /** Creates an environment. */
  @Operation({
    id: 'createEnvironment',
    body: { type: CreateEnvironmentDto, examples: CREATE_ENVIRONMENT_EXAMPLES },
    refusals: { 400: [KEY_MALFORMED], 422: [KEY_REUSED] },
  })
  @Post()
  @TakesIdempotencyKey()
  async create(
    @CurrentUser() userId: string,
    @Body() body: CreateEnvironmentDto,
    @IdempotencyKey() key?: string,
  ): Promise<EnvironmentResponse> {
    return EnvironmentResponse.of(await this.environments.create(userId, body, key));
  }

  /** Lists the environments that are not archived, newest first. */
  @Operation({ id: 'listEnvironments', refusals: { 400: LIST_REFUSALS } })
  @ListAnswer({
    type: EnvironmentListResponse,
    after: 'The id of the last item that was received.',
  })
  @Get()
  async list(@ListOf() list: ListRequest): Promise<string | Readable> {
    const pages = await this.environments.list(list.userId, list);
    return listBody(list, pages, (state) => EnvironmentResponse.of(state));
  }

  /**
   * Reads an environment, which may be archived.
   * @remarks `build` tells whether the packages and the setup script of the current version are installed already, so that
   * sessions need not wait for them.
   */
  @Operation({ id: 'getEnvironment', refusals: { 404: NOT_FOUND } })
  @Get(':id')
  async get(
    @CurrentUser() userId: string,
    @Param('id') id: string,
  ): Promise<EnvironmentWithBuildResponse> {
    const environment = await this.environments.get(userId, id);
    return EnvironmentWithBuildResponse.with(environment, await this.builds.last(environment));
  }

  /**
   * Changes an environment.
   * @remarks Members that are left out stay; `env_vars` and lists are replaced as a whole. If a value changes, the
   * version increases by one and is stored in the history; otherwise nothing happens. Existing sessions keep the
   * version that they were created with.
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
    @CurrentUser() userId: string,
    @Param('id') id: string,
    @Body() body: UpdateEnvironmentDto,
  ): Promise<EnvironmentResponse> {
    return EnvironmentResponse.of(await this.environments.update(userId, id, body));
  }

  /** Archives an environment for good: it is hidden from lists, still readable, and never changed again. */
  @Operation({
    id: 'archiveEnvironment',
    refusals: { 404: NOT_FOUND, 409: ['Environment is already archived'] },
  })
  @Post(':id/archive')
  @HttpCode(200)
  async archive(
    @CurrentUser() userId: string,
    @Param('id') id: string,
  ): Promise<EnvironmentResponse> {
    return EnvironmentResponse.of(await this.environments.archive(userId, id));
  }

  /**
   * Removes an environment that no session ever referenced, with its history.
   * @remarks It may be active or archived. Sessions that have been deleted since count as well.
   */
  @Operation({
    id: 'deleteEnvironment',
    refusals: { 404: NOT_FOUND, 409: ['Cannot delete environment with existing sessions'] },
  })
  @Delete(':id/delete')
  async delete(@CurrentUser() userId: string, @Param('id') id: string): Promise<DetailResponse> {
    await this.environments.delete(userId, id);
    return { detail: 'Environment deleted' };
  }

  /** Lists all versions of an environment, newest first. */
  @Operation({
    id: 'listEnvironmentVersions',
    refusals: { 400: LIST_REFUSALS, 404: ['Environment not found'] },
  })
  @ListAnswer({
    type: EnvironmentListResponse,
    after: 'The version number of the last item that was received.',
  })
  @Get(':id/versions')
  async versions(@ListOf() list: ListRequest, @Param('id') id: string): Promise<string | Readable> {
    const pages = await this.environments.versions(list.userId, id, list);
    return listBody(list, pages, (state) => EnvironmentResponse.of(state));
  }
}
