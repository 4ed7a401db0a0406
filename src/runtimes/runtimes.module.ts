import { Global, Module } from '@nestjs/common';
import type { AgentRuntime } from './agent-runtime.js';
import { ClaudeRuntime } from './claude.runtime.js';
import { CodexRuntime } from './codex.runtime.js';
import { GeminiRuntime } from './gemini.runtime.js';
import { OpenCodeRuntime } from './opencode.runtime.js';
import { AGENT_RUNTIMES, ProviderCatalogue } from './provider-catalogue.js';
import { ShellRuntime } from './shell.runtime.js';

/** The registry: a new runtime is one more line here. */
export const RUNTIMES: readonly AgentRuntime[] = [
  new ClaudeRuntime(),
  new CodexRuntime(),
  new GeminiRuntime(),
  new OpenCodeRuntime(),
  new ShellRuntime(),
];

@Global()
@Module({
  providers: [{ provide: AGENT_RUNTIMES, useValue: RUNTIMES }, ProviderCatalogue],
  exports: [ProviderCatalogue],
})
export class RuntimesModule {}
