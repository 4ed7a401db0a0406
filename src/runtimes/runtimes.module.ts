import { Global, Module } from '@nestjs/common';
import type { AgentRuntime } from './agent-runtime.js';
import { AGENT_RUNTIMES, ProviderCatalogue } from './provider-catalogue.js';
import { ShellRuntime } from './shell.runtime.js';

/** The registry: a new runtime is one more line here. */
const RUNTIMES: readonly AgentRuntime[] = [new ShellRuntime()];

@Global()
@Module({
  providers: [{ provide: AGENT_RUNTIMES, useValue: RUNTIMES }, ProviderCatalogue],
  exports: [ProviderCatalogue],
})
export class RuntimesModule {}
