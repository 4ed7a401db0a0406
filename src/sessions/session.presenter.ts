import { Injectable } from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import type { AcceptedSession, SessionObject, TurnObject } from './dto/session.dto.js';
import { presentUsage } from '../usage/dto/usage.dto.js';
import type { ShownSession, ShownTurn } from './sessions.repository.js';

/** Converts entities to what clients read, which never contains secrets. */
@Injectable()
export class SessionPresenter {
  constructor(private readonly config: AppConfig) {}

  accepted(id: string): AcceptedSession {
    return { id, status: 'pending', stream_url: this.streamUrl(id) };
  }

  session(session: ShownSession): SessionObject {
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
      progress: session.progress,
      budget: budgetOf(session),
      usage: presentUsage(session.usage),
      created_at: session.createdAt,
      updated_at: session.updatedAt,
    };
  }

  turn(turn: ShownTurn): TurnObject {
    return {
      id: turn.id,
      session_id: turn.sessionId,
      turn_number: turn.turnNumber,
      prompt: turn.prompt,
      timeout: turn.timeout,
      status: turn.status,
      exit_code: turn.exitCode,
      error: turn.error,
      created_at: turn.createdAt,
      started_at: turn.startedAt,
      ended_at: turn.endedAt,
      usage: presentUsage(turn.usage),
    };
  }

  private streamUrl(id: string): string {
    return `${this.config.publicUrl}${this.config.apiPrefix}/sessions/${id}/stream`;
  }
}

function budgetOf({ budgetTokens: tokens, budgetUsd: usd }: ShownSession): SessionObject['budget'] {
  if (tokens === null && usd === null) return null;
  return { ...(tokens !== null && { tokens }), ...(usd !== null && { usd }) };
}
