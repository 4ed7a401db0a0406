import { Inject, Injectable } from '@nestjs/common';
import { badRequest, unprocessable } from '../common/errors.js';
import { AppConfig, type ProviderAccess } from '../config/app-config.js';
import type { AgentRuntime, ResolvedModel } from './agent-runtime.js';

/** Injection token for the list of {@link AgentRuntime}s. */
export const AGENT_RUNTIMES = Symbol('agent runtimes');

/** A model as its runtime takes it, and the way to its API. */
export type ModelAccess = ResolvedModel & { access: ProviderAccess };

/** Which providers there are, and what belongs to each. */
@Injectable()
export class ProviderCatalogue {
  private readonly byName = new Map<string, AgentRuntime>();

  constructor(
    @Inject(AGENT_RUNTIMES) runtimes: readonly AgentRuntime[],
    private readonly config: AppConfig,
  ) {
    for (const runtime of runtimes) {
      for (const name of [runtime.provider, ...runtime.aliases]) this.byName.set(name, runtime);
    }
  }

  /** @throws Refusal 400 for a provider that there is not. */
  runtimeOf(provider: string): AgentRuntime {
    const runtime = this.byName.get(provider);
    if (!runtime) throw badRequest(`Unknown provider: ${JSON.stringify(provider)}`);
    return runtime;
  }

  /** @throws Refusal 400 for an unknown provider, 422 for a model that is not this provider's. */
  requireModelOf(provider: string, model: string): void {
    const runtime = this.runtimeOf(provider);
    const prefixes = [...runtime.modelPrefixes, ...ownPrefixes(runtime)];
    const matches = prefixes.some((prefix) => model.startsWith(prefix) && model !== prefix);
    if (!matches || this.resolve(runtime, model) === undefined) {
      throw unprocessable(
        `Model ${JSON.stringify(model)} does not match provider ${JSON.stringify(provider)}: ` +
          `expected a model that begins with ${[...new Set(prefixes)].join(', ')}`,
      );
    }
  }

  /**
   * What a runtime has to be told for a model: the name that it takes, and the key and gateway that configuration has.
   * @throws Refusal 400 when a key is needed and none is configured.
   */
  accessFor(runtime: AgentRuntime, model: string): ModelAccess {
    const resolved = this.resolve(runtime, model);
    if (resolved === undefined) {
      throw badRequest(
        `Provider ${runtime.provider} cannot run the model ${JSON.stringify(model)}`,
      );
    }
    const { api } = resolved;
    if (api === undefined) return { model: resolved.model, api, access: {} };
    const access = this.config.providers[api];
    if (access.apiKey === undefined) {
      const named = api === runtime.provider ? '' : ` for models of ${api}`;
      throw badRequest(`Provider ${runtime.provider} has no API key configured${named}`);
    }
    return { model: resolved.model, api, access };
  }

  private resolve(runtime: AgentRuntime, model: string): ResolvedModel | undefined {
    const own = ownPrefixes(runtime).find((prefix) => model.startsWith(prefix));
    return runtime.resolveModel(own === undefined ? model : model.slice(own.length));
  }
}

function ownPrefixes(runtime: AgentRuntime): string[] {
  return [runtime.provider, ...runtime.aliases].map((name) => `${name}/`);
}
