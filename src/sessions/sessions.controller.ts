import { Body, Controller, Delete, Get, HttpCode, Param, Post } from '@nestjs/common';
import { ApiBearerAuth, ApiHeader, ApiTags } from '@nestjs/swagger';
import { DetailResponse } from '../common/dto/detail-response.dto.js';
import { OwnerId } from '../common/owner.decorator.js';
import { CreateSessionDto, PromptSessionDto } from './dto/create-session.dto.js';
import { AcceptedSession, SessionList, SessionObject, TurnList } from './dto/session.dto.js';
import { IdempotencyKey } from './idempotency-key.decorator.js';
import { SessionPresenter } from './session.presenter.js';
import { SessionsService } from './sessions.service.js';

const IDEMPOTENCY_HEADER = {
  name: 'Idempotency-Key',
  required: false,
  description:
    'Makes it safe to repeat the request when its answer was lost. For 24 hours, the same key with the same body gives ' +
    'the first answer and does nothing else; with another body it is a 422. 1 to 255 visible ASCII characters.',
  schema: { type: 'string', minLength: 1, maxLength: 255 },
};

@ApiTags('sessions')
@ApiBearerAuth()
@Controller('sessions')
export class SessionsController {
  constructor(
    private readonly sessions: SessionsService,
    private readonly present: SessionPresenter,
  ) {}

  /** Creates a session and queues its first turn. */
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

  /** Lists all sessions, newest first. */
  @Get()
  async list(@OwnerId() userId: string): Promise<SessionList> {
    const sessions = await this.sessions.list(userId);
    return { data: sessions.map((session) => this.present.session(session)) };
  }

  @Get(':id')
  async get(@OwnerId() userId: string, @Param('id') id: string): Promise<SessionObject> {
    return this.present.session(await this.sessions.get(userId, id));
  }

  /** Continues a completed session with a further turn in the same sandbox. */
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

  /** Ends a session for good and frees its sandbox. */
  @Post(':id/terminate')
  @HttpCode(200)
  async terminate(@OwnerId() userId: string, @Param('id') id: string): Promise<DetailResponse> {
    await this.sessions.terminate(userId, id);
    return { detail: 'Session terminated' };
  }

  /** Deletes an inactive session with its turns, prompts, secrets, logs and sandbox. */
  @Delete(':id/delete')
  async delete(@OwnerId() userId: string, @Param('id') id: string): Promise<DetailResponse> {
    await this.sessions.delete(userId, id);
    return { detail: 'Session deleted' };
  }

  /** Lists a session's turns in order. */
  @Get(':id/turns')
  async turns(@OwnerId() userId: string, @Param('id') id: string): Promise<TurnList> {
    const turns = await this.sessions.turns(userId, id);
    return { data: turns.map((turn) => this.present.turn(turn)) };
  }
}
