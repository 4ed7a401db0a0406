import type { AgentRuntime, ModelApi } from './agent-runtime.js';
import { ClaudeRuntime } from './claude.runtime.js';
import { CodexRuntime } from './codex.runtime.js';
import { GeminiRuntime } from './gemini.runtime.js';
import { OpenCodeRuntime } from './opencode.runtime.js';
import { MODEL_APIS } from './runtime-support.js';
import { ShellRuntime } from './shell.runtime.js';

/** The registry: a new runtime is one more line here. */
export const RUNTIMES: readonly AgentRuntime[] = [
  new ClaudeRuntime(),
  new CodexRuntime(),
  new GeminiRuntime(),
  new OpenCodeRuntime(),
  new ShellRuntime(),
];

/** The model APIs by the names that agents may use for the provider. */
export const MODEL_API_NAMES: ReadonlyMap<string, ModelApi> = new Map(
  RUNTIMES.flatMap(({ provider, aliases }) =>
    isModelApi(provider) ? [provider, ...aliases].map((name) => [name, provider] as const) : [],
  ),
);

function isModelApi(provider: string): provider is ModelApi {
  return provider in MODEL_APIS;
}
