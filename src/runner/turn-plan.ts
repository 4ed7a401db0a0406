import { Inject, Injectable } from '@nestjs/common';
import { AgentsService } from '../agents/agents.service.js';
import {
  EnvironmentsService,
  type PinnedEnvironment,
} from '../environments/environments.service.js';
import type { AgentRuntime, RuntimeTurn, Skill } from '../runtimes/agent-runtime.js';
import { MODEL_APIS } from '../runtimes/model-api.js';
import { ProviderCatalogue } from '../runtimes/provider-catalogue.js';
import { SANDBOX_DRIVER } from '../sandboxes/sandbox-host.js';
import type { SandboxDriver, SandboxLayout } from '../sandboxes/sandbox-driver.js';
import { SessionPlans } from '../sessions/session-plans.repository.js';
import type { PublicResource } from '../sessions/session-resources.js';
import type { ClaimedTurn } from '../sessions/turn-lease.repository.js';

/** A repository with the token to fetch it with. */
export type Repository = PublicResource & { token?: string };

/** Which version of which environment. */
export interface EnvironmentPin {
  id: string;
  version: number;
}

/** Everything that running a turn takes, from the versions that the session is pinned to. Holds secrets. */
export interface TurnPlan {
  sandboxId: string;
  runtime: AgentRuntime;
  runtimeTurn: RuntimeTurn;
  skills: readonly Skill[];
  /** Hosts of the model's API; none where a gateway stands in its place. */
  apiHosts: readonly string[];
  /** That gateway's URL, as configuration has it. */
  gateway: string | undefined;
  environment: (PinnedEnvironment & EnvironmentPin) | undefined;
  repositories: readonly Repository[];
  /** All values that must not show in output, messages or logs. */
  secrets: readonly string[];
}

/** Puts a turn's plan together. The only place where secrets are opened. */
@Injectable()
export class TurnPlanner {
  constructor(
    private readonly plans: SessionPlans,
    private readonly agents: AgentsService,
    private readonly environments: EnvironmentsService,
    private readonly catalogue: ProviderCatalogue,
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
  ) {}

  /** @throws Refusal for a provider whose key is gone; Error when the session is. */
  async plan(turn: ClaimedTurn): Promise<TurnPlan> {
    const session = await this.plans.ofUnscoped(turn.session_id);
    const agent = await this.agents.pinnedUnscoped(session.agentId, session.agentVersion);
    const { sandboxId, environmentId, environmentVersion } = session;
    const environment =
      environmentId === null || environmentVersion === null
        ? undefined
        : {
            id: environmentId,
            version: environmentVersion,
            ...(await this.environments.pinnedUnscoped(environmentId, environmentVersion)),
          };
    const runtime = this.catalogue.runtimeOf(agent.provider);
    const { model, api, access } = this.catalogue.accessFor(runtime, agent.model);
    const { apiKey, baseUrl } = access;
    const repositories = session.resources.map((resource, index) => ({
      ...resource,
      token: session.tokens[String(index)],
    }));
    return {
      sandboxId,
      runtime,
      skills: agent.skills,
      apiHosts: api === undefined || baseUrl !== undefined ? [] : [MODEL_APIS[api].host],
      gateway: baseUrl,
      environment,
      repositories,
      runtimeTurn: {
        turnNumber: turn.turn_number,
        sessionId: turn.session_id,
        model,
        prompt: turn.turn_number === 1 ? joinPrompt(agent.system, turn.prompt) : turn.prompt,
        mcpServers: agent.mcpServers,
        skills: agent.skills,
        access: { apiKey, baseUrl: baseUrl && this.driver.gatewayUrl(baseUrl) },
        layout: this.driver.layout(sandboxId),
      },
      secrets: [
        apiKey,
        ...Object.values(environment?.envVars ?? {}),
        ...repositories.map((repository) => repository.token),
        ...agent.mcpServers.flatMap((server) =>
          Object.values(server.type === 'stdio' ? server.env : server.headers),
        ),
      ].filter((secret) => secret !== undefined),
    };
  }
}

/** The same plan for another sandbox. */
export function movedTo(plan: TurnPlan, sandboxId: string, layout: SandboxLayout): TurnPlan {
  return { ...plan, sandboxId, runtimeTurn: { ...plan.runtimeTurn, layout } };
}

function joinPrompt(system: string, prompt: string): string {
  return [system, prompt].filter((part) => part !== '').join('\n\n');
}
