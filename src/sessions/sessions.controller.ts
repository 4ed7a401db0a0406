import {
  createParamDecorator,
  type ExecutionContext,
  Body,
  Controller,
  Delete,
  Get,
  HttpCode,
  Param,
  Post,
} from '@nestjs/common';
import type { FastifyRequest } from 'fastify';
import { badRequest } from '../common/errors.js';
import { isUuid } from '../common/storable.js';
import { SESSION_STATUSES, SANDBOX_GONE } from './session-transitions.js';
import type { SessionFilter } from './sessions.repository.js';
import type { Readable } from 'node:stream';
import { ApiQuery, ApiTags } from '@nestjs/swagger';
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
import { CreateSessionDto, PromptSessionDto } from './dto/create-session.dto.js';
import {
  AcceptedSession,
  SessionList,
  SessionObject,
  TurnList,
  CREATE_SESSION_EXAMPLES,
  PROMPT_SESSION_EXAMPLES,
} from './dto/session.dto.js';
import { NO_PRICE } from '../usage/budgets.js';
import { SessionPresenter } from './session.presenter.js';
import { SessionsService } from './sessions.service.js';

export const BAD_STATUS = `status must be one of ${SESSION_STATUSES.join(', ')}`;
/** An id that no agent has, for filters that are not UUIDs. */
const NO_AGENT = '00000000-0000-0000-0000-000000000000';

/** The filter of a list request. @throws DomainError 400. */
export const SessionFilterOf = createParamDecorator(
  (_data: unknown, context: ExecutionContext): SessionFilter => {
    const { query } = context.switchToHttp().getRequest<FastifyRequest>();
    const { status, agent_id: agentId } = query as Record<string, unknown>;
    return {
      status: status === undefined ? undefined : readStatus(status),
      agentId: agentId === undefined ? undefined : readAgent(agentId),
    };
  },
);

function readStatus(value: unknown): SessionFilter['status'] {
  const status = SESSION_STATUSES.find((known) => known === value);
  if (status === undefined) throw badRequest(BAD_STATUS);
  return status;
}

function readAgent(value: unknown): string {
  const id = typeof value === 'string' ? value.toLowerCase() : '';
  return isUuid(id) ? id : NO_AGENT;
}

const NOT_FOUND = ['Session not found'];
const NO_KEY = [
  'Provider anthropic has no API key configured',
  'Provider opencode has no API key configured for models of openai',
];
const USER_OVER_BUDGET = 'User has used up the budget of 1000000 tokens for this month';
const LIMIT =
  'Concurrent session limit reached (10 of 10 active). Terminate an active session first.';
@ApiTags('sessions')
@Controller('sessions')
export class SessionsController {
  constructor(
    private readonly sessions: SessionsService,
    private readonly present: SessionPresenter,
  ) {}

  /**
   * Creates a session and queues its first turn.
   * @remarks The agent runs in the background; watch it at `stream_url`. The session is pinned to the versions that the
   * agent and the environment have now. A rejected request stores nothing. Errors after the acceptance appear in the
   * stream, as a failed stage and an `error` event.
   */
  @Operation({
    id: 'createSession',
    body: { type: CreateSessionDto, examples: CREATE_SESSION_EXAMPLES },
    refusals: {
      400: [...NO_KEY, 'Unknown provider: "acme"', KEY_MALFORMED],
      404: ['Agent not found', 'Environment not found'],
      409: [
        'Cannot create session with archived agent',
        'Cannot create session with archived environment',
      ],
      422: [
        'A prompt is required: the agent has no system prompt',
        'The url of a repository must begin with https:// or http://',
        'The url of a repository must not hold credentials; use authorization_token',
        'The url of a repository is not a valid URL',
        'The mount_path of a repository must lie below the workspace',
        'The mount_path of a repository is not a valid path',
        'Two resources have the mount path "app", or one lies in the other',
        'The path of a file must lie below the workspace',
        'The path of a file is not a valid path',
        'A file needs either content or content_base64',
        'The content_base64 of a file is not base64',
        'Two resources have the path "data/input.csv", or one replaces it',
        'A checkout of type commit needs a sha of 7 to 64 hexadecimal digits',
        'A checkout of type branch needs the name of a branch',
        NO_PRICE,
        USER_OVER_BUDGET,
        KEY_REUSED,
      ],
      429: [LIMIT],
      502: [
        'Sandbox creation failed: bubblewrap not installed: run `apt-get install -y bubblewrap`',
      ],
    },
  })
  @Post()
  @HttpCode(202)
  @TakesIdempotencyKey()
  async create(
    @CurrentUser() userId: string,
    @Body() body: CreateSessionDto,
    @IdempotencyKey() key?: string,
  ): Promise<AcceptedSession> {
    return this.present.accepted(await this.sessions.create(userId, body, key));
  }

  /** Lists all sessions, ended ones too, newest first. */
  @Operation({ id: 'listSessions', refusals: { 400: [...LIST_REFUSALS, BAD_STATUS] } })
  @ListAnswer({ type: SessionList, after: 'The id of the last item that was received.' })
  @ApiQuery({
    name: 'status',
    required: false,
    description: 'Only sessions in this state.',
    schema: { type: 'string', enum: [...SESSION_STATUSES] },
  })
  @ApiQuery({
    name: 'agent_id',
    required: false,
    description: 'Only sessions of this agent.',
    schema: { type: 'string', format: 'uuid' },
  })
  @Get()
  async list(
    @ListOf() list: ListRequest,
    @SessionFilterOf() filter: SessionFilter,
  ): Promise<string | Readable> {
    const pages = await this.sessions.list(list.userId, filter, list);
    return listBody(list, pages, (session) => this.present.session(session));
  }

  /** Reads a session. */
  @Operation({ id: 'getSession', refusals: { 404: NOT_FOUND } })
  @Get(':id')
  async get(@CurrentUser() userId: string, @Param('id') id: string): Promise<SessionObject> {
    return this.present.session(await this.sessions.getWithProgress(userId, id));
  }

  /**
   * Continues a completed session with a further turn in the same sandbox.
   * @remarks Files and the runtime's history are as the last turn left them. Sandboxes of completed sessions are kept
   * only for a limited time. The turn counts towards the limit of concurrent sessions.
   */
  @Operation({
    id: 'promptSession',
    body: { type: PromptSessionDto, examples: PROMPT_SESSION_EXAMPLES },
    refusals: {
      400: [...NO_KEY, KEY_MALFORMED],
      404: NOT_FOUND,
      409: [
        'Session is already running',
        'Session already has a pending turn',
        'Session has failed and cannot be resumed. Start a new session.',
        'Session has been terminated',
        SANDBOX_GONE,
        'Session has used up its budget of 1000000 tokens; start a new session.',
      ],
      422: [USER_OVER_BUDGET, KEY_REUSED],
      429: [LIMIT],
    },
  })
  @Post(':id/prompt')
  @HttpCode(202)
  @TakesIdempotencyKey()
  async prompt(
    @CurrentUser() userId: string,
    @Param('id') id: string,
    @Body() body: PromptSessionDto,
    @IdempotencyKey() key?: string,
  ): Promise<AcceptedSession> {
    await this.sessions.prompt(userId, id, body, key);
    return this.present.accepted(id);
  }

  /**
   * Ends a session for good and frees its sandbox.
   * @remarks Allowed while it is `pending`, `running` or `completed`. Streams that are open get a `terminated` event.
   */
  @Operation({
    id: 'terminateSession',
    refusals: {
      404: NOT_FOUND,
      409: ['Session is already terminated', 'Session has already failed'],
    },
  })
  @Post(':id/terminate')
  @HttpCode(200)
  async terminate(@CurrentUser() userId: string, @Param('id') id: string): Promise<DetailResponse> {
    await this.sessions.terminate(userId, id);
    return { detail: 'Session terminated' };
  }

  /**
   * Deletes a session with its turns, prompts, secrets, log and sandbox.
   * @remarks Terminate a `pending` or `running` session first. Its environment still cannot be deleted afterwards.
   */
  @Operation({
    id: 'deleteSession',
    refusals: { 404: NOT_FOUND, 409: ['Cannot delete an active session'] },
  })
  @Delete(':id/delete')
  async delete(@CurrentUser() userId: string, @Param('id') id: string): Promise<DetailResponse> {
    await this.sessions.delete(userId, id);
    return { detail: 'Session deleted' };
  }

  /** Lists a session's turns in order. */
  @Operation({ id: 'listSessionTurns', refusals: { 400: LIST_REFUSALS, 404: NOT_FOUND } })
  @ListAnswer({ type: TurnList, after: 'The id of the last item that was received.' })
  @Get(':id/turns')
  async turns(@ListOf() list: ListRequest, @Param('id') id: string): Promise<string | Readable> {
    const pages = await this.sessions.turns(list.userId, id, list);
    return listBody(list, pages, (turn) => this.present.turn(turn));
  }
}
