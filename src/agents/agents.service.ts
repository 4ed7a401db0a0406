import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { Injectable } from '@nestjs/common';
import { conflict, InvalidBody, notFound } from '../common/errors.js';
import { updateOptimistically } from '../common/optimistic-update.js';
import { EnvironmentsService } from '../environments/environments.service.js';
import type { McpServer, Skill } from '../runtimes/agent-runtime.js';
import { ProviderCatalogue } from '../runtimes/provider-catalogue.js';
import { KeyRing } from '../secrets/key-ring.js';
import { secretContext } from '../secrets/secret-contexts.js';
import { type AgentContent, type AgentPin, AgentsRepository } from './agents.repository.js';
import {
  type CreateAgentDto,
  MAX_METADATA_KEYS,
  type UpdateAgentDto,
} from './dto/agent-body.dto.js';
import type { AgentState } from './dto/agent-response.dto.js';
import { readMcpServer } from './dto/mcp-server.dto.js';
import { readSkill } from './dto/skill.dto.js';
import type { AgentVersionEntity } from './entities/agent-version.entity.js';
import type { AgentEntity } from './entities/agent.entity.js';
import { joinMcpServers, splitMcpServers } from './mcp-servers.js';
import { mergeMetadata } from './metadata.js';

const NOT_FOUND = 'Agent not found';

/** What an agent says, its secrets in the clear; never leaves the process but into a sandbox. */
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

/** What a turn runs with: one pinned version of an agent. */
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

/** Agents of a user. Every method takes the owner; what is not theirs is not there. */
@Injectable()
export class AgentsService {
  constructor(
    private readonly agents: AgentsRepository,
    private readonly environments: EnvironmentsService,
    private readonly catalogue: ProviderCatalogue,
    private readonly keys: KeyRing,
  ) {}

  /** @throws Refusal 400 for an unknown provider, 422 for another provider's model, 404 for the environment. */
  async create(userId: string, dto: CreateAgentDto): Promise<AgentState> {
    const { name, provider, model } = dto;
    const id = randomUUID();
    const agent = apply({ name, provider, model, ...EMPTY }, dto);
    this.catalogue.requireModelOf(provider, model);
    await this.requireEnvironment(userId, agent.environmentId);
    return this.agents.create(userId, id, this.contentOf(id, 1, agent));
  }

  /** Active ones, newest first. */
  async list(userId: string): Promise<AgentState[]> {
    return this.agents.list(userId);
  }

  /** @throws Refusal 404. */
  async get(userId: string, id: string): Promise<AgentState> {
    return this.require(userId, id);
  }

  /** @throws Refusal 404; 409 when archived or of another version; as {@link create} for what it changes. */
  async update(userId: string, id: string, dto: UpdateAgentDto): Promise<AgentState> {
    return updateOptimistically({
      submittedVersion: dto.version,
      archivedDetail: 'Cannot update an archived agent',
      read: () => this.require(userId, id),
      change: async (current) => {
        const before = this.definitionOf(current);
        const after = apply(before, dto);
        if (isDeepStrictEqual(before, after)) return undefined;
        // What a PUT does not change is not judged again: the catalogue may have grown stricter since.
        if (before.provider !== after.provider || before.model !== after.model) {
          this.catalogue.requireModelOf(after.provider, after.model);
        }
        if (before.environmentId !== after.environmentId) {
          await this.requireEnvironment(userId, after.environmentId);
        }
        return after;
      },
      write: (current, after) =>
        this.agents.replace(current, this.contentOf(current.id, current.version + 1, after)),
    });
  }

  /** @throws Refusal 404; 409 when it is archived. */
  async archive(userId: string, id: string): Promise<AgentState> {
    const { id: known } = await this.require(userId, id);
    if (!(await this.agents.archive(userId, known))) {
      throw conflict('Agent is already archived');
    }
    return this.require(userId, id);
  }

  /** The whole history, newest first. @throws Refusal 404. */
  async versions(userId: string, id: string): Promise<AgentState[]> {
    const agent = await this.require(userId, id);
    const versions = await this.agents.listVersionsUnscoped(agent.id);
    return versions.map((row) => stateIn(agent, row));
  }

  /**
   * What a session created now takes from the agent.
   * @throws Refusal 404; 409 when it is archived.
   */
  async pinForSession(userId: string, id: string): Promise<AgentPin> {
    const found = await this.agents.findPin(userId, id);
    if (!found) throw notFound(NOT_FOUND);
    const { archived, ...pin } = found;
    if (archived) throw conflict('Cannot create session with archived agent');
    return pin;
  }

  /** One version with its secrets opened, for the runner. */
  async pinnedUnscoped(id: string, version: number): Promise<PinnedAgent> {
    const found = await this.agents.findVersionUnscoped(id, version);
    if (!found) throw new Error(`Agent ${id} has no version ${version}`);
    const { provider, model, system, skills, mcpServers } = found.snapshot;
    const context = secretContext.agentVersion(id, version);
    const secrets = this.keys.openRecord<Record<string, string>>(found.mcpSecretsSealed, context);
    return { provider, model, system, skills, mcpServers: joinMcpServers(mcpServers, secrets) };
  }

  private async require(userId: string, id: string): Promise<AgentEntity> {
    const agent = await this.agents.find(userId, id);
    if (!agent) throw notFound(NOT_FOUND);
    return agent;
  }

  /** An archived environment passes: it still is there, and a session that would use it says what is wrong. */
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
  ): AgentContent {
    const { shown, secrets } = splitMcpServers(mcpServers);
    return {
      snapshot: { ...rest, mcpServers: shown },
      sealed: {
        agent: this.keys.sealRecord(secrets, secretContext.agent(id)),
        version: this.keys.sealRecord(secrets, secretContext.agentVersion(id, version)),
      },
    };
  }
}

/**
 * What is in the body replaces what was there, what is not stays, and metadata is merged.
 * @throws InvalidBody when the merged metadata has too many labels.
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
    mcpServers: dto.mcp_servers?.map(readMcpServer) ?? before.mcpServers,
    environmentId:
      dto.environment_id === undefined
        ? before.environmentId
        : (dto.environment_id?.toLowerCase() ?? null),
    metadata,
  };
}

function stateIn(agent: AgentEntity, row: AgentVersionEntity): AgentState {
  return {
    ...row.snapshot,
    id: agent.id,
    version: row.version,
    createdAt: agent.createdAt,
    updatedAt: row.createdAt,
    archivedAt: null,
  };
}
