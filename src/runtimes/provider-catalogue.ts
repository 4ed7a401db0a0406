import { Inject, Injectable } from '@nestjs/common';
import { badRequest, unprocessable } from '../common/errors.js';
import { AppConfig, type ProviderAccess } from '../config/app-config.js';
import type { AgentRuntime, ModelApi, ResolvedModel } from './agent-runtime.js';

/** Injection token for the list of {@link AgentRuntime}s. */
export const AGENT_RUNTIMES = Symbol('agent runtimes');

/** What the service itself sets in every sandbox: where the home is, and which launch a process belongs to. */
const OWN_VARIABLES = ['HOME', 'SANDBOX_LAUNCH'];

/** A model as its runtime takes it, and the way to its API. */
export type ModelAccess = ResolvedModel & { access: ProviderAccess };

/** Which providers there are, and what belongs to each. */
@Injectable()
export class ProviderCatalogue {
  /** Variables that only the service sets, whichever runtime a sandbox will be used by. */
  readonly reservedVariables: ReadonlySet<string>;
  private readonly byName = new Map<string, AgentRuntime>();

  constructor(
    @Inject(AGENT_RUNTIMES) runtimes: readonly AgentRuntime[],
    private readonly config: AppConfig,
  ) {
    this.reservedVariables = new Set([
      ...OWN_VARIABLES,
      ...runtimes.flatMap((runtime) => runtime.reservedVariables),
    ]);
    for (const runtime of runtimes) {
      for (const name of [runtime.provider, ...runtime.aliases]) this.byName.set(name, runtime);
    }
  }

  /** @throws DomainError 400 for a provider that there is not. */
  runtimeOf(provider: string): AgentRuntime {
    const runtime = this.byName.get(provider);
    if (!runtime) throw badRequest(`Unknown provider: ${JSON.stringify(provider)}`);
    return runtime;
  }

  /** @throws DomainError 400 for an unknown provider, 422 for a model that is not this provider's. */
  requireModelOf(provider: string, model: string): void {
    const runtime = this.runtimeOf(provider);
    const prefixes = [...runtime.modelPrefixes, ...ownPrefixes(runtime)];
    const matches = prefixes.some((prefix) => model.startsWith(prefix) && isName(model, prefix));
    if (!matches || this.resolve(runtime, model) === undefined) {
      throw unprocessable(
        `Model ${JSON.stringify(model)} does not match provider ${JSON.stringify(provider)}: ` +
          `expected a model that begins with ${[...new Set(prefixes)].join(', ')}`,
      );
    }
  }

  /**
   * What a model's runtime needs: the name that it takes, the key, and the address from the configuration.
   * @param ownKey the user's own key for an API. It takes precedence over the configured one.
   * @throws DomainError 400 when a key is needed and there is none.
   */
  accessFor(
    runtime: AgentRuntime,
    model: string,
    ownKey: (api: ModelApi) => string | undefined,
  ): ModelAccess {
    const resolved = this.requireResolved(runtime, model);
    const { api } = resolved;
    if (api === undefined) return { ...resolved, access: {} };
    const configured = this.config.providers[api];
    const apiKey = ownKey(api) ?? configured.apiKey;
    if (apiKey === undefined) throw noKey(runtime, api);
    return { ...resolved, access: { ...configured, apiKey } };
  }

  /**
   * Checks that there is a key for a model. Calls `hasOwnKey` only if none is configured.
   * @throws DomainError 400 when a key is needed and there is none.
   */
  async requireAccess(
    runtime: AgentRuntime,
    model: string,
    hasOwnKey: (api: ModelApi) => Promise<boolean>,
  ): Promise<void> {
    const { api } = this.requireResolved(runtime, model);
    if (api === undefined || this.config.providers[api].apiKey !== undefined) return;
    if (!(await hasOwnKey(api))) throw noKey(runtime, api);
  }

  private requireResolved(runtime: AgentRuntime, model: string): ResolvedModel {
    const resolved = this.resolve(runtime, model);
    if (resolved !== undefined) return resolved;
    throw badRequest(`Provider ${runtime.provider} cannot run the model ${JSON.stringify(model)}`);
  }

  private resolve(runtime: AgentRuntime, model: string): ResolvedModel | undefined {
    const own = ownPrefixes(runtime).find((prefix) => model.startsWith(prefix));
    return runtime.resolveModel(own === undefined ? model : model.slice(own.length));
  }
}

function noKey({ provider }: AgentRuntime, api: ModelApi): Error {
  const named = api === provider ? '' : ` for models of ${api}`;
  return badRequest(`Provider ${provider} has no API key configured${named}`);
}

/** Some models are called as their prefix (`o3`); one that ends in a separator is only the beginning of a name. */
function isName(model: string, prefix: string): boolean {
  return model !== prefix || !/[-/]$/.test(prefix);
}

function ownPrefixes(runtime: AgentRuntime): string[] {
  return [runtime.provider, ...runtime.aliases].map((name) => `${name}/`);
}
