import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { Injectable } from '@nestjs/common';
import { conflict, InvalidBody, notFound } from '../common/errors.js';
import {
  belowVersion,
  type ListQuery,
  lookAhead,
  mapPages,
  type Pages,
  positionAfter,
} from '../common/lists/list-request.js';
import { type ListedVersion, type VersionedContent } from '../database/versioned-rows.js';
import { updateOptimistically } from '../database/optimistic-update.js';
import type { SqlExecutor } from '../database/sql.js';
import { EnvironmentsService } from '../environments/environments.service.js';
import { RepeatableRequests, type Reserve } from '../idempotency/repeatable-requests.js';
import type { McpServer, Skill } from '../runtimes/agent-runtime.js';
import { ProviderCatalogue } from '../runtimes/provider-catalogue.js';
import { KeyRing, secretContext } from '../secrets/key-ring.js';
import { type AgentPin, AgentsRepository } from './agents.repository.js';
import {
  type CreateAgentDto,
  MAX_METADATA_KEYS,
  type UpdateAgentDto,
  type AgentState,
} from './dto/agent.dto.js';
import { readMcpServer } from './dto/mcp-server.dto.js';
import { readSkill } from './dto/skill.dto.js';
import type { AgentEntity, AgentSnapshot } from './entities/agent.entity.js';
import { joinMcpServers, splitMcpServers } from './mcp-servers.js';

/** Flat labels of an agent. */
export type Metadata = Readonly<Record<string, string>>;

/**
 * Merges the labels of a PUT into the current ones: a text adds or replaces a label, an empty text deletes it, and
 * labels that are not submitted stay. Does not change its inputs.
 */
export function mergeMetadata(current: Metadata, submitted: Metadata): Metadata {
  const merged = new Map([...Object.entries(current), ...Object.entries(submitted)]);
  // Object.fromEntries defines properties, so a label called `__proto__` is an ordinary one.
  return Object.fromEntries([...merged].filter(([, value]) => value !== ''));
}

const NOT_FOUND = 'Agent not found';
const ARCHIVED = 'Cannot create session with archived agent';

/** The definition of an agent with decrypted secrets. It must not leave the process except to a sandbox. */
interface AgentDefinition {
  name: string;
  provider: string;
  model: string;
  system: string;
  skills: Skill[];
  mcpServers: McpServer[];
  environmentId: string | null;
  metadata: Record<string, string>;
}

/** The pinned version of an agent that a turn uses. */
export type PinnedAgent = Pick<
  AgentDefinition,
  'provider' | 'model' | 'system' | 'skills' | 'mcpServers'
>;

const EMPTY: Omit<AgentDefinition, 'name' | 'provider' | 'model'> = {
  system: '',
  skills: [],
  mcpServers: [],
  environmentId: null,
  metadata: {},
};

/** Agents of users. Every method takes the owner; agents of other users are not found. */
@Injectable()
export class AgentsService {
  constructor(
    private readonly agents: AgentsRepository,
    private readonly environments: EnvironmentsService,
    private readonly catalogue: ProviderCatalogue,
    private readonly keys: KeyRing,
    private readonly requests: RepeatableRequests,
  ) {}

  /**
   * @param key the idempotency key: repeating the request with it within a day returns the agent as it was created.
   * @throws DomainError 400 for an unknown provider, 422 for another provider's model, 404 for the environment.
   */
  async create(userId: string, dto: CreateAgentDto, key?: string): Promise<AgentState> {
    return this.requests.once({
      userId,
      route: 'POST /agents',
      body: dto,
      key,
      work: (reserve) => this.insert(userId, dto, reserve),
      repeat: (id) => this.asCreated(userId, id),
    });
  }

  private async insert(
    userId: string,
    dto: CreateAgentDto,
    reserve: Reserve | undefined,
  ): Promise<AgentState> {
    const { name, provider, model } = dto;
    const id = randomUUID();
    const agent = apply({ name, provider, model, ...EMPTY }, dto);
    this.catalogue.requireModelOf(provider, model);
    await this.requireEnvironment(userId, agent.environmentId);
    await this.agents.refuseEarly(userId, agent);
    return this.agents.create(userId, id, this.contentOf(id, 1, agent), reserve);
  }

  private async asCreated(userId: string, id: string): Promise<AgentState> {
    const agent = await this.require(userId, id);
    const first = await this.agents.findVersionUnscoped(id, 1);
    if (!first) throw notFound(NOT_FOUND);
    return stateIn(agent, { ...first, version: 1, createdAt: agent.createdAt });
  }

  /** The active agents, newest first. @throws DomainError 400 if `after` is no item of the list. */
  async list(userId: string, query: ListQuery): Promise<Pages<AgentState>> {
    const after = await positionAfter(query, (id) => this.agents.position(userId, id));
    return this.agents.list(userId, { after, limit: lookAhead(query) });
  }

  /** @throws DomainError 404. */
  async get(userId: string, id: string): Promise<AgentState> {
    return this.require(userId, id);
  }

  /** @throws DomainError 404; 409 if it is archived or has another version; as {@link create} for the new values. */
  async update(userId: string, id: string, dto: UpdateAgentDto): Promise<AgentState> {
    return updateOptimistically({
      submittedVersion: dto.version,
      archivedDetail: 'Cannot update an archived agent',
      read: () => this.require(userId, id),
      change: async (current) => {
        const before = this.definitionOf(current);
        const after = apply(before, dto);
        if (isDeepStrictEqual(before, after)) return undefined;
        // Values that a PUT does not change are not checked again, because the catalogue may be stricter by now.
        if (before.provider !== after.provider || before.model !== after.model) {
          this.catalogue.requireModelOf(after.provider, after.model);
        }
        if (before.environmentId !== after.environmentId) {
          await this.requireEnvironment(userId, after.environmentId);
        }
        return after;
      },
      write: async (current, after) => {
        await this.agents.refuseEarly(userId, after);
        return this.agents.replace(current, this.contentOf(current.id, current.version + 1, after));
      },
    });
  }

  /** @throws DomainError 404; 409 when it is archived. */
  async archive(userId: string, id: string): Promise<AgentState> {
    const { id: known } = await this.require(userId, id);
    if (!(await this.agents.archive(userId, known))) {
      throw conflict('Agent is already archived');
    }
    return this.require(userId, id);
  }

  /** The history, newest first. @throws DomainError 404; 400 if `after` is no item of the list. */
  async versions(userId: string, id: string, query: ListQuery): Promise<Pages<AgentState>> {
    const agent = await this.require(userId, id);
    const below = belowVersion(query);
    const limit = lookAhead(query);
    const versions = this.agents.listVersionsUnscoped(agent.id, { below, limit });
    return mapPages(versions, (row) => stateIn(agent, row));
  }

  /**
   * The fields of the agent for a new session.
   * @throws DomainError 404; 409 when it is archived.
   */
  async pinForSession(userId: string, id: string): Promise<AgentPin> {
    const found = await this.agents.findPin(userId, id);
    if (!found) throw notFound(NOT_FOUND);
    const { archived, ...pin } = found;
    if (archived) throw conflict(ARCHIVED);
    return pin;
  }

  /**
   * Locks the agent in the transaction that inserts the session, so that it cannot be archived before the commit.
   * @throws DomainError 409 when it has been archived since it was pinned.
   */
  async holdForSessionUnscoped(sql: SqlExecutor, id: string): Promise<void> {
    if (!(await this.agents.lockActiveUnscoped(sql, id))) throw conflict(ARCHIVED);
  }

  /** One version with its secrets decrypted, for the runner. */
  async pinnedUnscoped(id: string, version: number): Promise<PinnedAgent> {
    const found = await this.agents.findVersionUnscoped(id, version);
    if (!found) throw new Error(`Agent ${id} has no version ${version}`);
    const { provider, model, system, skills, mcpServers } = found.snapshot;
    const context = secretContext.agentVersion(id, version);
    const secrets = this.keys.openRecord<Record<string, string>>(found.sealed, context);
    return { provider, model, system, skills, mcpServers: joinMcpServers(mcpServers, secrets) };
  }

  private async require(userId: string, id: string): Promise<AgentEntity> {
    const agent = await this.agents.find(userId, id);
    if (!agent) throw notFound(NOT_FOUND);
    return agent;
  }

  /** Accepts archived environments: they still exist, and creating a session with one is rejected with the reason. */
  private async requireEnvironment(userId: string, id: string | null): Promise<void> {
    if (id !== null && !(await this.environments.exists(userId, id))) {
      throw notFound('Environment not found');
    }
  }

  private definitionOf(agent: AgentEntity): AgentDefinition {
    const { name, provider, model, system, skills, environmentId, metadata } = agent;
    const secrets = this.keys.openRecord<Record<string, string>>(
      agent.mcpSecretsSealed,
      secretContext.agent(agent.id),
    );
    const mcpServers = joinMcpServers(agent.mcpServers, secrets);
    return { name, provider, model, system, skills, mcpServers, environmentId, metadata };
  }

  private contentOf(
    id: string,
    version: number,
    { mcpServers, ...rest }: AgentDefinition,
  ): VersionedContent<AgentSnapshot> {
    const { shown, secrets } = splitMcpServers(mcpServers);
    return {
      snapshot: { ...rest, mcpServers: shown },
      sealed: {
        resource: this.keys.sealRecord(secrets, secretContext.agent(id)),
        version: this.keys.sealRecord(secrets, secretContext.agentVersion(id, version)),
      },
    };
  }
}

/**
 * Members of the body replace the current values, others stay, and metadata is merged.
 * @throws InvalidBody if the merged metadata has too many labels.
 */
function apply(before: AgentDefinition, dto: Omit<UpdateAgentDto, 'version'>): AgentDefinition {
  const metadata = mergeMetadata(before.metadata, dto.metadata ?? {});
  if (Object.keys(metadata).length > MAX_METADATA_KEYS) {
    const msg = `Must not leave more than ${MAX_METADATA_KEYS} keys`;
    throw new InvalidBody([{ type: 'too_long', loc: ['body', 'metadata'], msg }]);
  }
  return {
    name: dto.name ?? before.name,
    provider: dto.provider ?? before.provider,
    model: dto.model ?? before.model,
    system: dto.system ?? before.system,
    skills: dto.skills?.map(readSkill) ?? before.skills,
    mcpServers:
      dto.mcp_servers?.map((server) => readMcpServer(server, before.mcpServers)) ??
      before.mcpServers,
    environmentId: dto.environment_id === undefined ? before.environmentId : dto.environment_id,
    metadata,
  };
}

function stateIn(agent: AgentEntity, row: ListedVersion<AgentSnapshot>): AgentState {
  return {
    ...row.snapshot,
    id: agent.id,
    version: row.version,
    createdAt: row.createdAt,
    updatedAt: row.createdAt,
    archivedAt: null,
  };
}
