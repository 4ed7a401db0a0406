import { randomUUID } from 'node:crypto';
import { Inject, Injectable } from '@nestjs/common';
import { AgentsService } from '../agents/agents.service.js';
import { conflict, notFound, Refusal, unprocessable, upstream } from '../common/errors.js';
import { isUuid } from '../common/uuid.js';
import { currentWork, noteWork } from '../common/work-context.js';
import { AppConfig } from '../config/app-config.js';
import type { SqlExecutor } from '../database/sql.js';
import { EnvironmentsService } from '../environments/environments.service.js';
import { Doorbell } from '../event-log/doorbell.js';
import { EventLogRepository } from '../event-log/event-log.repository.js';
import { ProviderCatalogue } from '../runtimes/provider-catalogue.js';
import type { SandboxDriver } from '../sandboxes/sandbox-driver.js';
import { SandboxError } from '../sandboxes/sandbox-error.js';
import { SANDBOX_DRIVER, SandboxHost } from '../sandboxes/sandbox-host.js';
import { KeyRing } from '../secrets/key-ring.js';
import { secretContext } from '../secrets/secret-contexts.js';
import {
  type CreateSessionDto,
  DEFAULT_TIMEOUT,
  type PromptSessionDto,
} from './dto/create-session.dto.js';
import { type EndedTurn, EndedTurns } from './ended-turns.js';
import type { Session } from './entities/session.entity.js';
import type { Turn } from './entities/turn.entity.js';
import { hashBody } from './idempotency-key.decorator.js';
import { IdempotencyRepository } from './idempotency.repository.js';
import { readResources } from './session-resources.js';
import { refusalOf, SANDBOX_GONE, type SessionAction } from './session-transitions.js';
import { type LockedSession, SessionsRepository } from './sessions.repository.js';
import { WorkersRepository } from './workers.repository.js';

const PREFLIGHT_LIMIT_MS = 10_000;

/** Part of the transaction that does what a request asks for: makes sure that its repetition does not. */
type Reserve = (sql: SqlExecutor, sessionId: string) => Promise<void>;

/** Rolls a transaction back: the same request has been carried out. */
class DoneBefore extends Error {
  constructor(readonly sessionId: string) {
    super('The request was carried out before');
  }
}

/** Sessions as clients see them: created, prompted, terminated, deleted. Running them is the runner's. */
@Injectable()
export class SessionsService {
  constructor(
    private readonly repository: SessionsRepository,
    private readonly agents: AgentsService,
    private readonly environments: EnvironmentsService,
    private readonly catalogue: ProviderCatalogue,
    private readonly log: EventLogRepository,
    private readonly doorbell: Doorbell,
    private readonly keys: KeyRing,
    private readonly config: AppConfig,
    private readonly idempotency: IdempotencyRepository,
    private readonly workers: WorkersRepository,
    private readonly host: SandboxHost,
    private readonly endedTurns: EndedTurns,
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
  ) {}

  /**
   * Accepts a session and queues its first turn. A refusal leaves nothing behind.
   * @param key makes it safe to ask again: within a day, the same key gives the same session.
   * @returns the session's id.
   */
  async create(userId: string, request: CreateSessionDto, key?: string): Promise<string> {
    return this.once(userId, 'POST /sessions', request, key, (reserve) =>
      this.accept(userId, request, reserve),
    );
  }

  private async accept(
    userId: string,
    request: CreateSessionDto,
    reserve: Reserve,
  ): Promise<string> {
    const { resources, tokens } = readResources(request.resources);
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
    this.catalogue.accessFor(this.catalogue.runtimeOf(agent.provider), agent.model);
    await this.preflight();

    const id = randomUUID();
    await this.repository.transaction(async (sql) => {
      await reserve(sql, id);
      await this.repository.reserveUnderLimit(sql, userId, this.config.sessionLimit);
      // Of the same transaction, so that the environment cannot be deleted in between.
      const pinned =
        environment && (await this.environments.markReferenced(sql, userId, environment.id));
      if (environment && !pinned) throw notFound('Environment not found');
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
          secretsSealed: this.keys.sealRecord(tokens, secretContext.session(id)),
        },
        {
          prompt: request.prompt ?? '',
          timeout: request.timeout ?? DEFAULT_TIMEOUT,
          traceparent: currentWork().traceparent,
        },
      );
      await this.doorbell.ringWork(sql);
    });
    this.doorbell.work();
    noteWork({ sessionId: id });
    return id;
  }

  async list(userId: string): Promise<Session[]> {
    return this.repository.list(userId);
  }

  async get(userId: string, id: string): Promise<Session> {
    const session = isUuid(id) ? await this.repository.find(userId, id) : null;
    if (!session) throw notFound('Session not found');
    return session;
  }

  async turns(userId: string, id: string): Promise<Turn[]> {
    const session = await this.get(userId, id);
    return this.repository.turnsOfUnscoped(session.id);
  }

  /** Queues a further turn in the same sandbox. @param key as in {@link create}. */
  async prompt(userId: string, id: string, request: PromptSessionDto, key?: string): Promise<void> {
    await this.once(userId, `POST /sessions/${id}/prompt`, request, key, (reserve) =>
      this.requeue(userId, id, request, reserve),
    );
  }

  private async requeue(
    userId: string,
    id: string,
    request: PromptSessionDto,
    reserve: Reserve,
  ): Promise<string> {
    const session = await this.get(userId, id);
    const refused = refusalOf('prompt', session.status);
    if (refused) throw refused;
    const agent = await this.agents.pinnedUnscoped(session.agentId, session.agentVersion);
    this.catalogue.accessFor(this.catalogue.runtimeOf(agent.provider), agent.model);
    if (!(await this.sandboxIsThere(id))) throw conflict(SANDBOX_GONE);

    await this.change(
      'prompt',
      userId,
      id,
      async (sql, { timeout }) => {
        if (!(await this.repository.wakeSandbox(sql, id))) throw conflict(SANDBOX_GONE);
        await this.repository.reserveUnderLimit(sql, userId, this.config.sessionLimit);
        await this.repository.requeue(sql, id, {
          prompt: request.prompt,
          timeout: request.timeout ?? timeout,
          traceparent: currentWork().traceparent,
        });
      },
      (sql) => reserve(sql, id),
    );
    return id;
  }

  /** Ends the session for good and gives its sandbox up. */
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

  /** Does what the state table allows to a locked session, and tells streams and workers. @throws Refusal */
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
        await this.doorbell.ringChange(sql, id);
        await this.doorbell.ringWork(sql);
      });
    } catch (error) {
      // The answer to a commit that was applied may have been lost: only a refusal is sure to have changed nothing.
      if (!(error instanceof Refusal || error instanceof DoneBefore)) this.tell(id);
      throw error;
    }
    this.tell(id);
  }

  private tell(id: string): void {
    this.doorbell.changed(id);
    this.doorbell.work();
  }

  /** Does the work unless a request with the same key did it already; of several at a time, one does. */
  private async once(
    userId: string,
    route: string,
    body: object,
    key: string | undefined,
    work: (reserve: Reserve) => Promise<string>,
  ): Promise<string> {
    if (key === undefined) return work(async () => undefined);
    const request = { userId, route, key, bodyHash: hashBody(body) };
    const before = await this.idempotency.find(request);
    if (before !== undefined) return before;
    try {
      return await work(async (sql, id) => {
        const other = await this.idempotency.reserve(sql, request, id);
        if (other !== undefined) throw new DoneBefore(other);
      });
    } catch (error) {
      if (error instanceof DoneBefore) return error.sessionId;
      // What is refused now may be so because the same request was carried out a moment ago.
      const meanwhile = error instanceof Refusal ? await this.idempotency.find(request) : undefined;
      if (meanwhile === undefined) throw error;
      return meanwhile;
    }
  }

  /** Whether sandboxes can be made: here, or, where this process makes none, by the workers. */
  private async preflight(): Promise<void> {
    if (this.config.role === 'api') {
      const problem = await this.workers.problem(this.driver.name);
      if (problem !== null) throw upstream(`Sandbox creation failed: ${problem}`);
      return;
    }
    try {
      await this.driver.preflight({ signal: AbortSignal.timeout(PREFLIGHT_LIMIT_MS) });
    } catch (error) {
      const cause = error instanceof Error ? error.message : String(error);
      throw upstream(`Sandbox creation failed: ${cause}`, error);
    }
  }

  /** Does the sandbox still exist? Where the upstream does not say, the turn finds out: that is no refusal. */
  private async sandboxIsThere(sessionId: string): Promise<boolean> {
    const sandbox = await this.repository.sandboxUnscoped(sessionId);
    if (sandbox === undefined) return false;
    // Only its own host can look; the record stands for it everywhere else.
    if (sandbox.host !== this.host.name) return true;
    try {
      const signal = AbortSignal.timeout(PREFLIGHT_LIMIT_MS);
      return await this.driver.exists({ sandboxId: sandbox.id, signal });
    } catch (error) {
      return !(error instanceof SandboxError && error.kind === 'gone');
    }
  }
}
