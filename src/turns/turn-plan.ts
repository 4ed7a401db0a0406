import { Injectable, Inject } from '@nestjs/common';
import { upstream } from '../common/errors.js';
import {
  isRepository,
  type PublicRepository,
  type UploadedFile,
} from '../sessions/session-resources.js';
import { AgentsService } from '../agents/agents.service.js';
import {
  EnvironmentsService,
  type PinnedEnvironment,
} from '../environments/environments.service.js';
import type { ModelGrant, ToolGrant } from '../gateway/grants.js';
import type { AgentRuntime, McpServer, RuntimeTurn, Skill } from '../runtimes/agent-runtime.js';
import { upstreamUrl } from '../runtimes/runtime-support.js';
import { ProviderCatalogue } from '../runtimes/provider-catalogue.js';
import { SANDBOX_DRIVER } from '../sandboxes/sandbox-host.js';
import type {
  GatewayAccess,
  SandboxDriver,
  SandboxLayout,
} from '../sandboxes/driver/sandbox-driver.js';
import type { ClaimedTurn } from './turn-queue.repository.js';
import { partsOfHeader, partsOfSecret } from './redaction/redactor.js';
import { SessionPlans } from './session-plans.repository.js';
import { hostMatches, normalizeHostName, parseHostPattern } from '../common/host-pattern.js';

/** A repository with the token to fetch it with. */
export type Repository = PublicRepository & { token?: string };

/** A version of an environment. */
export interface EnvironmentPin {
  id: string;
  version: number;
}

/** Credentials that never enter the sandbox. */
export interface TurnCredentials {
  model: Pick<ModelGrant, 'api' | 'url' | 'key'> | undefined;
  /** Remote tool servers with secret headers, each with the variable that holds its grant in the sandbox. */
  tools: readonly (Pick<ToolGrant, 'transport' | 'url' | 'headers'> & { variable: string })[];
}

/** Everything that is needed to run a turn, from the versions that the session is pinned to. Contains secrets. */
export interface TurnPlan {
  sandboxId: string;
  runtime: AgentRuntime;
  runtimeTurn: RuntimeTurn;
  skills: readonly Skill[];
  /** Where programs in the sandbox reach the gateway. */
  gateway: GatewayAccess;
  /** What only the gateway gets to see, in addition to the tokens of the repositories. */
  credentials: TurnCredentials;
  environment: (PinnedEnvironment & EnvironmentPin) | undefined;
  repositories: readonly Repository[];
  /** The files that the session was given. They are kept until they are in the sandbox. */
  uploads: {
    any: boolean;
    load: () => Promise<UploadedFile[]>;
    forget: () => Promise<void>;
  };
  /** All values that must not appear in output, messages or logs. */
  secrets: readonly string[];
}

/** Makes the plan of a turn. This is the only place that decrypts secrets. */
@Injectable()
export class TurnPlanner {
  constructor(
    private readonly plans: SessionPlans,
    private readonly agents: AgentsService,
    private readonly environments: EnvironmentsService,
    private readonly catalogue: ProviderCatalogue,
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
  ) {}

  /** @throws DomainError if the provider's key has been removed; Error if the session has been deleted. */
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
    const { model, api, access } = this.catalogue.accessFor(runtime, agent.model, session.ownKey);
    const { apiKey, baseUrl } = access;
    const gateway = await this.driver.gateway();
    const { mcpServers, tools } = throughGateway(agent.mcpServers, gateway, environment);
    const repositories = session.resources.flatMap((resource, index) =>
      isRepository(resource) ? [{ ...resource, token: session.tokens[String(index)] }] : [],
    );
    if (
      gateway.isMissing === true &&
      (apiKey !== undefined || tools.length > 0 || repositories.some(({ token }) => token))
    ) {
      const message = 'sandboxes cannot use credentials without a gateway: set GATEWAY_URL';
      throw upstream(message);
    }
    return {
      sandboxId,
      runtime,
      skills: agent.skills,
      gateway,
      credentials: {
        model:
          api === undefined || apiKey === undefined
            ? undefined
            : { api, url: upstreamUrl(api, baseUrl), key: apiKey },
        tools,
      },
      environment,
      repositories,
      uploads: {
        any: session.resources.some((resource) => !isRepository(resource)),
        load: () => this.plans.uploadsUnscoped(turn.session_id),
        forget: () => this.plans.forgetUploadsUnscoped(turn.session_id),
      },
      runtimeTurn: {
        turnNumber: turn.turn_number,
        sessionId: turn.session_id,
        model,
        prompt: turn.turn_number === 1 ? joinPrompt(agent.system, turn.prompt) : turn.prompt,
        mcpServers,
        skills: agent.skills,
        access: api === undefined ? {} : { baseUrl: `${gateway.url}/${api}` },
        layout: this.driver.layout(sandboxId),
      },
      secrets: secretsOf({
        values: [
          apiKey,
          ...Object.values(environment?.envVars ?? {}),
          ...repositories.map((repository) => repository.token),
          ...agent.mcpServers.flatMap((server) =>
            server.type === 'stdio' ? Object.values(server.env) : [],
          ),
        ],
        headers: agent.mcpServers.flatMap((server) =>
          server.type === 'stdio' ? [] : Object.values(server.headers),
        ),
      }),
    };
  }
}

/**
 * Replaces remote tool servers with secret headers by addresses of the gateway, unless the network policy does not allow
 * the server. Then the program gets its address without the headers, and cannot connect.
 */
function throughGateway(
  servers: readonly McpServer[],
  gateway: GatewayAccess,
  environment: PinnedEnvironment | undefined,
): { mcpServers: McpServer[]; tools: TurnCredentials['tools'] } {
  const tools: TurnCredentials['tools'][number][] = [];
  const mcpServers = servers.map((server): McpServer => {
    if (server.type === 'stdio' || Object.keys(server.headers).length === 0) return server;
    if (!permitsTools(environment, server.url)) return { ...server, headers: {} };
    const { type, name, url, headers } = server;
    const variable = `SESSION_GRANT_MCP_${tools.length}`;
    const address = `${gateway.url}/mcp/${tools.length}`;
    tools.push({ transport: type, url, headers, variable });
    return { type, name, url: address, headers: {}, grantVariable: variable };
  });
  return { mcpServers, tools };
}

/** Whether the environment's network policy allows a tool server. */
function permitsTools(environment: PinnedEnvironment | undefined, url: string): boolean {
  const networking = environment?.networking;
  if (networking?.type !== 'limited' || networking.allow_mcp_servers) return true;
  const name = normalizeHostName(new URL(url).hostname);
  return name !== undefined && hostMatches(networking.allowed_hosts.map(parseHostPattern), name);
}

/** The secret values, and those parts of them that are secrets on their own. */
function secretsOf(of: {
  values: readonly (string | undefined)[];
  headers: readonly string[];
}): string[] {
  const values = of.values.filter((value) => value !== undefined);
  return [
    ...values,
    ...of.headers,
    ...values.flatMap(partsOfSecret),
    ...of.headers.flatMap(partsOfHeader),
  ];
}

/** The same plan for another sandbox. */
export function movedTo(plan: TurnPlan, sandboxId: string, layout: SandboxLayout): TurnPlan {
  return { ...plan, sandboxId, runtimeTurn: { ...plan.runtimeTurn, layout } };
}

function joinPrompt(system: string, prompt: string): string {
  return [system, prompt].filter((part) => part !== '').join('\n\n');
}
