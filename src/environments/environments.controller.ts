import { Body, Controller, Delete, Get, HttpCode, Param, Post, Put } from '@nestjs/common';
import { ApiBearerAuth, ApiTags } from '@nestjs/swagger';
import { DetailResponse } from '../common/dto/detail-response.dto.js';
import { OwnerId } from '../common/owner.decorator.js';
import { CreateEnvironmentDto, UpdateEnvironmentDto } from './dto/environment-body.dto.js';
import { EnvironmentListResponse, EnvironmentResponse } from './dto/environment-response.dto.js';
import { EnvironmentsService } from './environments.service.js';

@ApiTags('environments')
@ApiBearerAuth()
@Controller('environments')
export class EnvironmentsController {
  constructor(private readonly environments: EnvironmentsService) {}

  /** Creates an environment. */
  @Post()
  async create(
    @OwnerId() userId: string,
    @Body() body: CreateEnvironmentDto,
  ): Promise<EnvironmentResponse> {
    return EnvironmentResponse.of(await this.environments.create(userId, body));
  }

  /** Lists the environments that are not archived, newest first. */
  @Get()
  async list(@OwnerId() userId: string): Promise<EnvironmentListResponse> {
    return {
      data: (await this.environments.list(userId)).map((state) => EnvironmentResponse.of(state)),
    };
  }

  /** Reads an environment, an archived one too. */
  @Get(':id')
  async get(@OwnerId() userId: string, @Param('id') id: string): Promise<EnvironmentResponse> {
    return EnvironmentResponse.of(await this.environments.get(userId, id));
  }

  /** Changes an environment. `env_vars` is replaced as a whole. */
  @Put(':id')
  async update(
    @OwnerId() userId: string,
    @Param('id') id: string,
    @Body() body: UpdateEnvironmentDto,
  ): Promise<EnvironmentResponse> {
    return EnvironmentResponse.of(await this.environments.update(userId, id, body));
  }

  /** Archives an environment: hidden from lists, still readable, never changed again. */
  @Post(':id/archive')
  @HttpCode(200)
  async archive(@OwnerId() userId: string, @Param('id') id: string): Promise<EnvironmentResponse> {
    return EnvironmentResponse.of(await this.environments.archive(userId, id));
  }

  /** Removes an environment that no session ever referenced, active or archived, with its history. */
  @Delete(':id/delete')
  async delete(@OwnerId() userId: string, @Param('id') id: string): Promise<DetailResponse> {
    await this.environments.delete(userId, id);
    return { detail: 'Environment deleted' };
  }

  /** Lists all versions of an environment, newest first. */
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
