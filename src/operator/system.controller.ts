import { Controller, Get, Header, HttpCode, Param, Post, Query } from '@nestjs/common';
import { ApiQuery, ApiResponse, ApiTags } from '@nestjs/swagger';
import { badRequest } from '../common/errors.js';
import { DetailResponse } from '../common/openapi/error-responses.dto.js';
import { Operation } from '../common/openapi/operation.decorator.js';
import { CurrentUser } from '../common/request-decorators.js';
import { Sql } from '../database/sql.js';
import {
  listSandboxes,
  NO_SANDBOX,
  SANDBOX_IN_USE,
} from '../sandboxes/lifecycle/sandbox-operations.js';
import { SANDBOX_STATES, type SandboxState } from '../sandboxes/lifecycle/sandbox-states.js';
import { QueuePositions } from '../sessions/queue-positions.repository.js';
import { SessionOperations } from '../sessions/session-operations.js';
import { WorkersRepository } from '../sessions/workers.repository.js';
import { SandboxList, WaitingList, WorkerList } from './dto/operator.dto.js';
import { BAD_LIMIT, Limit, LimitQuery } from './limit.js';
import { pageOf, presentSandbox } from './operator.presenter.js';
import { OperatorService } from './operator.service.js';

const BAD_STATE = `state must be one of ${SANDBOX_STATES.join(', ')}`;

/** What the service is doing, for operators. No prompts, outputs or errors of sessions: they belong to their users. */
@ApiTags('operator')
@Controller('operator')
export class SystemController {
  constructor(
    private readonly workers: WorkersRepository,
    private readonly sessions: SessionOperations,
    private readonly positions: QueuePositions,
    private readonly sql: Sql,
    private readonly operator: OperatorService,
  ) {}

  /** Lists the workers, those that are alive first. */
  @Operation({ id: 'listWorkers', forOperators: true, refusals: { 400: [BAD_LIMIT] } })
  @LimitQuery()
  @ApiResponse({ status: 200, type: WorkerList })
  @Get('workers')
  async listWorkers(@Limit() limit: number): Promise<WorkerList> {
    return pageOf(await this.workers.list(limit + 1), limit, (worker) => worker);
  }

  /** Lists the sessions of all users whose turn no worker has, the longest waiting one first. */
  @Operation({ id: 'listQueue', forOperators: true, refusals: { 400: [BAD_LIMIT] } })
  @LimitQuery()
  @ApiResponse({ status: 200, type: WaitingList })
  @Get('queue')
  async listQueue(@Limit() limit: number): Promise<WaitingList> {
    const waiting = await this.sessions.waiting(limit + 1);
    const sentences = await this.positions.describeUnscoped(waiting.map(({ id }) => id));
    return pageOf(waiting, limit, (each) => ({
      ...each,
      progress: sentences.get(each.id) ?? null,
    }));
  }

  /** Lists the sandboxes on record, newest first. */
  @Operation({ id: 'listSandboxes', forOperators: true, refusals: { 400: [BAD_LIMIT, BAD_STATE] } })
  @LimitQuery()
  @ApiQuery({
    name: 'state',
    required: false,
    description: 'Only sandboxes in this state.',
    schema: { type: 'string', enum: [...SANDBOX_STATES] },
  })
  @ApiResponse({ status: 200, type: SandboxList })
  @Get('sandboxes')
  async listSandboxes(
    @Limit() limit: number,
    @Query('state') state: unknown,
  ): Promise<SandboxList> {
    const wanted = state === undefined ? undefined : readState(state);
    return pageOf(await listSandboxes(this.sql, wanted, limit + 1), limit, presentSandbox);
  }

  /**
   * Destroys an idle sandbox. Its session is kept, but cannot be continued.
   * @remarks Its host's worker destroys it within seconds.
   */
  @Operation({
    id: 'destroySandbox',
    forOperators: true,
    refusals: { 404: [NO_SANDBOX], 409: [SANDBOX_IN_USE] },
  })
  @ApiResponse({ status: 200, type: DetailResponse })
  @Post('sandboxes/:id/destroy')
  @HttpCode(200)
  @Header('cache-control', 'no-store')
  async destroySandbox(
    @CurrentUser() by: string,
    @Param('id') id: string,
  ): Promise<DetailResponse> {
    await this.operator.destroySandbox(by, id);
    return { detail: 'The sandbox is being destroyed' };
  }

  /** Terminates a session of any user and frees its sandbox. */
  @Operation({
    id: 'terminateAnySession',
    forOperators: true,
    refusals: {
      404: ['There is no session with the id "0d2f6c1e-6a3b-4f0e-9c55-2f1f7c1b7a10"'],
      409: ['Session is already terminated', 'Session has already failed'],
    },
  })
  @ApiResponse({ status: 200, type: DetailResponse })
  @Post('sessions/:id/terminate')
  @HttpCode(200)
  async terminateSession(
    @CurrentUser() by: string,
    @Param('id') id: string,
  ): Promise<DetailResponse> {
    await this.operator.terminateSession(by, id);
    return { detail: 'Session terminated' };
  }
}

function readState(value: unknown): SandboxState {
  const state = SANDBOX_STATES.find((known) => known === value);
  if (state === undefined) throw badRequest(BAD_STATE);
  return state;
}
