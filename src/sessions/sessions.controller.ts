import { Body, Controller, Delete, Get, HttpCode, Param, Post } from '@nestjs/common';
import { ApiBearerAuth, ApiTags } from '@nestjs/swagger';
import { DetailResponse } from '../common/dto/detail-response.dto.js';
import { OwnerId } from '../common/owner.decorator.js';
import { CreateSessionDto, PromptSessionDto } from './dto/create-session.dto.js';
import { AcceptedSession, SessionList, SessionObject, TurnList } from './dto/session.dto.js';
import { SessionPresenter } from './session.presenter.js';
import { SessionsService } from './sessions.service.js';

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
  async create(
    @OwnerId() userId: string,
    @Body() body: CreateSessionDto,
  ): Promise<AcceptedSession> {
    return this.present.accepted(await this.sessions.create(userId, body));
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
  async prompt(
    @OwnerId() userId: string,
    @Param('id') id: string,
    @Body() body: PromptSessionDto,
  ): Promise<AcceptedSession> {
    await this.sessions.prompt(userId, id, body);
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
