import { Inject, Injectable } from '@nestjs/common';
import { badRequest, unprocessable } from '../common/errors.js';
import { AppConfig, type ProviderAccess } from '../config/app-config.js';
import type { AgentRuntime } from './agent-runtime.js';

/** Injection token for the list of {@link AgentRuntime}s. */
export const AGENT_RUNTIMES = Symbol('agent runtimes');

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
    const prefixes = [
      ...runtime.modelPrefixes,
      ...[runtime.provider, ...runtime.aliases].map((name) => `${name}/`),
    ];
    const matches = prefixes.some((prefix) => model.startsWith(prefix) && model !== prefix);
    if (!matches) {
      throw unprocessable(
        `Model ${JSON.stringify(model)} does not match provider ${JSON.stringify(provider)}: ` +
          `expected a model that begins with ${[...new Set(prefixes)].join(', ')}`,
      );
    }
  }

  /**
   * The key and gateway that configuration has for a runtime.
   * @throws Refusal 400 when the runtime needs a key and none is configured.
   */
  accessFor(runtime: AgentRuntime): ProviderAccess {
    if (runtime.access === undefined) return {};
    const access = this.config.providers[runtime.access];
    if (access.apiKey === undefined) {
      throw badRequest(`Provider ${runtime.provider} has no API key configured`);
    }
    return access;
  }
}
