import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { AgentsService } from '../agents/agents.service.js';
import { conflict, notFound, DomainError, unprocessable } from '../common/errors.js';
import {
  type ListQuery,
  lookAhead,
  type Pages,
  positionAfter,
} from '../common/lists/list-request.js';
import { isUuid } from '../common/storable.js';
import { currentWork, noteWork } from '../common/work-context.js';
import { AppConfig } from '../config/app-config.js';
import type { SqlExecutor } from '../database/sql.js';
import { EnvironmentsService } from '../environments/environments.service.js';
import { Notifier } from '../event-log/log-notifications.js';
import { EventLogRepository } from '../event-log/event-log.repository.js';
import {
  DoneBefore,
  RepeatableRequests,
  type Reserve,
} from '../idempotency/repeatable-requests.js';
import { type SessionSandbox, wakeSandbox } from '../sandboxes/lifecycle/session-sandboxes.js';
import { KeyRing, secretContext } from '../secrets/key-ring.js';
import {
  type CreateSessionDto,
  DEFAULT_TIMEOUT,
  type PromptSessionDto,
} from './dto/create-session.dto.js';
import { type EndedTurn, EndedTurns } from './ended-turns.js';
import { QueuePositions } from './queue-positions.repository.js';
import { isRepository, readResources } from './session-resources.js';
import { refusalOf, SANDBOX_GONE, type SessionAction } from './session-transitions.js';
import {
  type LockedSession,
  type SessionFilter,
  SessionsRepository,
  type ShownSession,
  type ShownTurn,
} from './sessions.repository.js';
import { TurnRequirements } from './turn-requirements.js';

/** What clients do with sessions: create, read, prompt, terminate, delete. Workers run their turns. */
@Injectable()
export class SessionsService {
  constructor(
    private readonly repository: SessionsRepository,
    private readonly agents: AgentsService,
    private readonly environments: EnvironmentsService,
    private readonly log: EventLogRepository,
    private readonly notifier: Notifier,
    private readonly keys: KeyRing,
    private readonly config: AppConfig,
    private readonly requests: RepeatableRequests,
    private readonly endedTurns: EndedTurns,
    private readonly positions: QueuePositions,
    private readonly requirements: TurnRequirements,
  ) {}

  /**
   * Accepts a session and queues its first turn. Stores nothing if it throws.
   * @param key the idempotency key: repeating the request with it within a day returns the same session.
   * @returns the session's id.
   */
  async create(userId: string, request: CreateSessionDto, key?: string): Promise<string> {
    return this.requests.once({
      userId,
      route: 'POST /sessions',
      body: request,
      key,
      work: (reserve) => this.accept(userId, request, reserve),
      repeat: async (id) => id,
    });
  }

  private async accept(
    userId: string,
    request: CreateSessionDto,
    reserve: Reserve | undefined,
  ): Promise<string> {
    const { resources, tokens, files } = readResources(request.resources);
    const agent = await this.agents.pinForSession(userId, request.agent_id);
    if (!request.prompt && agent.system === '') {
      throw unprocessable('A prompt is required: the agent has no system prompt');
    }
    const environmentId =
      request.environment_id === undefined ? agent.environmentId : request.environment_id;
    const environment =
      environmentId === null
        ? undefined
        : await this.environments.pinForSession(userId, environmentId);
    await this.requirements.forSession(userId, agent, request.budget ?? {});

    const id = randomUUID();
    await this.repository.transaction(async (sql) => {
      await reserve?.(sql, id);
      await this.repository.reserveUnderLimit(sql, userId, this.config.sessionLimit);
      // In the same transaction, so that nothing is archived or deleted in between.
      await this.agents.holdForSessionUnscoped(sql, agent.id);
      const pinned =
        environment && (await this.environments.markReferenced(sql, userId, environment.id));
      await this.repository.insert(
        sql,
        {
          id,
          userId,
          agentId: agent.id,
          agentVersion: agent.version,
          environmentId: environment?.id ?? null,
          environmentVersion: pinned?.version ?? null,
          provider: agent.provider,
          resources,
          files,
          secretsSealed: this.keys.sealRecord(tokens, secretContext.session(id)),
          budget: request.budget ?? {},
        },
        {
          prompt: request.prompt ?? '',
          timeout: request.timeout ?? DEFAULT_TIMEOUT,
          traceparent: currentWork().traceparent,
        },
      );
      await this.notifier.sendWork(sql);
    });
    this.notifier.workAvailable();
    noteWork({ sessionId: id });
    return id;
  }

  /** Newest first. @throws DomainError 400 if `after` is no item of the list. */
  async list(
    userId: string,
    filter: SessionFilter,
    query: ListQuery,
  ): Promise<Pages<ShownSession>> {
    const after = await positionAfter(query, (id) => this.repository.position(userId, id));
    return this.repository.list(userId, filter, { after, limit: lookAhead(query) });
  }

  /** Like {@link get}. While no worker has the latest turn, `progress` says what it waits for. */
  async getWithProgress(userId: string, id: string): Promise<ShownSession> {
    const session = await this.get(userId, id);
    if (!session.unattended) return session;
    const sentences = await this.positions.describeUnscoped([session.id]);
    return { ...session, progress: sentences.get(session.id) ?? session.progress };
  }

  async get(userId: string, id: string): Promise<ShownSession> {
    const session = await this.repository.find(userId, id);
    if (!session) throw notFound('Session not found');
    return session;
  }

  /** The session's sandbox, unless there is none yet or any more. @throws DomainError 404 */
  async sandbox(userId: string, id: string): Promise<SessionSandbox | undefined> {
    const session = await this.get(userId, id);
    return this.repository.sandboxUnscoped(session.id);
  }

  /** The session's repositories with the commits that they began with. @throws DomainError 404 */
  async repositories(
    userId: string,
    id: string,
  ): Promise<{ mountPath: string; base: string | null }[]> {
    const session = await this.get(userId, id);
    const bases = await this.repository.basesUnscoped(session.id);
    return session.resources.filter(isRepository).map(({ mount_path: mountPath }) => ({
      mountPath,
      base: bases[mountPath] ?? null,
    }));
  }

  /** In their order. @throws DomainError 404; 400 if `after` is no item of the list. */
  async turns(userId: string, id: string, query: ListQuery): Promise<Pages<ShownTurn>> {
    const session = await this.get(userId, id);
    const after = await positionAfter(query, (turnId) =>
      this.repository.turnPositionUnscoped(session.id, turnId),
    );
    return this.repository.turnsOfUnscoped(session.id, { after, limit: lookAhead(query) });
  }

  /** Queues a further turn in the same sandbox. @param key as in {@link create}. */
  async prompt(userId: string, id: string, request: PromptSessionDto, key?: string): Promise<void> {
    // Checked first, because the idempotency key is looked up by a route with the id, which may hold text that the
    // database rejects.
    if (!isUuid(id)) throw notFound('Session not found');
    await this.requests.once({
      userId,
      route: `POST /sessions/${id}/prompt`,
      body: request,
      key,
      work: (reserve) => this.requeue(userId, id, request, reserve),
      repeat: async (before) => before,
    });
  }

  private async requeue(
    userId: string,
    id: string,
    request: PromptSessionDto,
    reserve: Reserve | undefined,
  ): Promise<string> {
    const session = await this.get(userId, id);
    const refused = refusalOf('prompt', session.status);
    if (refused) throw refused;
    const agent = await this.agents.pinnedUnscoped(session.agentId, session.agentVersion);
    await this.requirements.forPrompt(userId, agent, id);

    await this.change(
      'prompt',
      userId,
      id,
      async (sql, { timeout }) => {
        if (!(await wakeSandbox(sql, id))) throw conflict(SANDBOX_GONE);
        await this.repository.reserveUnderLimit(sql, userId, this.config.sessionLimit);
        await this.repository.requeue(sql, id, {
          prompt: request.prompt,
          timeout: request.timeout ?? timeout,
          traceparent: currentWork().traceparent,
        });
      },
      async (sql) => reserve?.(sql, id),
    );
    return id;
  }

  /** Ends the session for good and marks its sandbox for deletion. */
  async terminate(userId: string, id: string): Promise<void> {
    let ended: EndedTurn[] = [];
    await this.change('terminate', userId, id, async (sql) => {
      ended = await this.repository.terminate(sql, id);
    });
    for (const turn of ended) this.endedTurns.note(turn, 'terminated');
  }

  /** Removes an inactive session with its turns, secrets, log and sandbox. */
  async delete(userId: string, id: string): Promise<void> {
    await this.change('delete', userId, id, async (sql) => {
      await this.repository.delete(sql, id);
      await this.log.deleteSessionUnscoped(sql, id);
    });
  }

  /**
   * Changes a locked session if the state table allows the action, and notifies streams and workers. @throws
   * DomainError
   */
  private async change(
    action: SessionAction,
    userId: string,
    id: string,
    work: (sql: SqlExecutor, session: LockedSession) => Promise<unknown>,
    before: (sql: SqlExecutor) => Promise<void> = async () => undefined,
  ): Promise<void> {
    if (!isUuid(id)) throw notFound('Session not found');
    try {
      await this.repository.transaction(async (sql) => {
        await before(sql);
        const locked = await this.repository.lock(sql, userId, id);
        if (!locked) throw notFound('Session not found');
        const refused = refusalOf(action, locked.status);
        if (refused) throw refused;
        await work(sql, locked);
        await this.notifier.sendChange(sql, id);
        await this.notifier.sendWork(sql);
      });
    } catch (error) {
      // After any other error the commit may have been applied although its answer was lost.
      if (!(error instanceof DomainError || error instanceof DoneBefore)) this.notify(id);
      throw error;
    }
    this.notify(id);
  }

  private notify(id: string): void {
    this.notifier.changed(id);
    this.notifier.workAvailable();
  }
}
