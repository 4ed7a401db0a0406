import { Injectable } from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import type { AcceptedSession, SessionObject, TurnObject } from './dto/session.dto.js';
import type { Session } from './entities/session.entity.js';
import type { Turn } from './entities/turn.entity.js';

/** Entities → what clients read. Secrets do not exist on this side. */
@Injectable()
export class SessionPresenter {
  constructor(private readonly config: AppConfig) {}

  accepted(id: string): AcceptedSession {
    return { id, status: 'pending', stream_url: this.streamUrl(id) };
  }

  session(session: Session): SessionObject {
    return {
      type: 'session',
      id: session.id,
      status: session.status,
      agent_id: session.agentId,
      agent_version: session.agentVersion,
      environment_id: session.environmentId,
      environment_version: session.environmentVersion,
      provider: session.provider,
      timeout: session.timeout,
      resources: session.resources,
      turn_count: session.turnCount,
      current_turn: session.currentTurn,
      stream_url: this.streamUrl(session.id),
      exit_code: session.exitCode,
      error: session.error,
      created_at: session.createdAt,
      updated_at: session.updatedAt,
    };
  }

  turn(turn: Turn): TurnObject {
    return {
      id: turn.id,
      session_id: turn.sessionId,
      turn_number: turn.turnNumber,
      prompt: turn.prompt,
      status: turn.status,
      exit_code: turn.exitCode,
      error: turn.error,
      created_at: turn.createdAt,
      started_at: turn.startedAt,
      ended_at: turn.endedAt,
    };
  }

  private streamUrl(id: string): string {
    return `${this.config.publicUrl}${this.config.apiPrefix}/sessions/${id}/stream`;
  }
}
