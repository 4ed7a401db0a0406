import { Body, Controller, Delete, Get, HttpCode, Param, Post } from '@nestjs/common';
import { ApiHeader, ApiTags } from '@nestjs/swagger';
import { DetailResponse } from '../common/dto/detail-response.dto.js';
import { Operation } from '../common/openapi/operation.decorator.js';
import { OwnerId } from '../common/owner.decorator.js';
import { CreateSessionDto, PromptSessionDto } from './dto/create-session.dto.js';
import { AcceptedSession, SessionList, SessionObject, TurnList } from './dto/session.dto.js';
import { SANDBOX_GONE } from './session-transitions.js';
import { IdempotencyKey } from './idempotency-key.decorator.js';
import { SessionPresenter } from './session.presenter.js';
import { CREATE_SESSION_EXAMPLES, PROMPT_SESSION_EXAMPLES } from './sessions.examples.js';
import { SessionsService } from './sessions.service.js';

const NOT_FOUND = ['Session not found'];
const NO_KEY = [
  'Provider anthropic has no API key configured',
  'Provider opencode has no API key configured for models of openai',
];
const LIMIT =
  'Concurrent session limit reached (10 of 10 active). Terminate an active session first.';
const KEY_MALFORMED = 'Idempotency-Key must be 1 to 255 visible ASCII characters';
const KEY_REUSED = 'The Idempotency-Key was used before with another request body';
const IDEMPOTENCY_HEADER = {
  name: 'Idempotency-Key',
  required: false,
  description:
    'Makes it safe to repeat the request when its answer was lost. For 24 hours, the same key with the same body gives ' +
    'the first answer and does nothing else; with another body it is a 422. 1 to 255 visible ASCII characters.',
  schema: { type: 'string', minLength: 1, maxLength: 255 },
};

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
   * agent and the environment have now. A refusal leaves nothing behind. What fails after the acceptance shows in the
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
        'The mount_path of a repository must lie below the workspace',
        'Two resources have the mount path "app", or one lies in the other',
        'A checkout of type commit needs a sha of 7 to 64 hexadecimal digits',
        'A checkout of type branch needs the name of a branch',
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
  @ApiHeader(IDEMPOTENCY_HEADER)
  async create(
    @OwnerId() userId: string,
    @Body() body: CreateSessionDto,
    @IdempotencyKey() key?: string,
  ): Promise<AcceptedSession> {
    return this.present.accepted(await this.sessions.create(userId, body, key));
  }

  /** Lists all sessions, ended ones too, newest first. */
  @Operation({ id: 'listSessions' })
  @Get()
  async list(@OwnerId() userId: string): Promise<SessionList> {
    const sessions = await this.sessions.list(userId);
    return { data: sessions.map((session) => this.present.session(session)) };
  }

  /** Reads a session. */
  @Operation({ id: 'getSession', refusals: { 404: NOT_FOUND } })
  @Get(':id')
  async get(@OwnerId() userId: string, @Param('id') id: string): Promise<SessionObject> {
    return this.present.session(await this.sessions.get(userId, id));
  }

  /**
   * Continues a completed session with a further turn in the same sandbox.
   * @remarks Files and the runtime's history are as the last turn left them. Sandboxes of completed sessions are kept for a
   * while only. The turn counts for the limit of concurrent sessions.
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
      ],
      422: [KEY_REUSED],
      429: [LIMIT],
    },
  })
  @Post(':id/prompt')
  @HttpCode(202)
  @ApiHeader(IDEMPOTENCY_HEADER)
  async prompt(
    @OwnerId() userId: string,
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
  async terminate(@OwnerId() userId: string, @Param('id') id: string): Promise<DetailResponse> {
    await this.sessions.terminate(userId, id);
    return { detail: 'Session terminated' };
  }

  /**
   * Deletes a session with its turns, prompts, secrets, log and sandbox.
   * @remarks One that is `pending` or `running` has to be terminated first. Its environment stays undeletable.
   */
  @Operation({
    id: 'deleteSession',
    refusals: { 404: NOT_FOUND, 409: ['Cannot delete an active session'] },
  })
  @Delete(':id/delete')
  async delete(@OwnerId() userId: string, @Param('id') id: string): Promise<DetailResponse> {
    await this.sessions.delete(userId, id);
    return { detail: 'Session deleted' };
  }

  /** Lists a session's turns in order. */
  @Operation({ id: 'listSessionTurns', refusals: { 404: NOT_FOUND } })
  @Get(':id/turns')
  async turns(@OwnerId() userId: string, @Param('id') id: string): Promise<TurnList> {
    const turns = await this.sessions.turns(userId, id);
    return { data: turns.map((turn) => this.present.turn(turn)) };
  }
}
