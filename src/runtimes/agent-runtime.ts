import type { ProviderAccess } from '../config/app-config.js';
import type { SandboxFile, SandboxLayout } from '../sandboxes/sandbox-driver.js';

/** A tool server as the agent's pinned version has it, with its secrets. */
export type McpServer =
  | { type: 'stdio'; name: string; command: string; args: string[]; env: Record<string, string> }
  | { type: 'http' | 'sse'; name: string; url: string; headers: Record<string, string> };

/** An inline skill: a SKILL.md with companions. */
export interface InlineSkill {
  name: string;
  description?: string;
  content: string;
  files?: { path: string; content: string }[];
}

/** A skill that lies in a git repository. */
export interface GitSkill {
  type: 'git';
  url: string;
  ref?: string;
  path?: string;
}

export type Skill = InlineSkill | GitSkill;

/** What a runtime is asked to do in one turn. */
export interface RuntimeTurn {
  /** 1 for the first. */
  turnNumber: number;
  sessionId: string;
  model: string;
  /** What the model reads; the system prompt already stands before the first turn's. */
  prompt: string;
  mcpServers: readonly McpServer[];
  skills: readonly Skill[];
  access: ProviderAccess;
  layout: SandboxLayout;
}

/** How a turn is started in the sandbox. */
export interface RuntimeLaunch {
  /** No secret may stand in here. */
  command: readonly [string, ...string[]];
  env: Readonly<Record<string, string>>;
  stdin: string;
}

/**
 * The port to one agent CLI. An implementation is pure: it says what to write and what to run, and others do it. A new
 * runtime is one file and a line in the catalogue.
 */
export interface AgentRuntime {
  /** The provider's name in agents, canonical. */
  readonly provider: string;
  /** Other names that clients may use for it. */
  readonly aliases: readonly string[];
  /** A model belongs to this provider if it begins with one of these, or with `<provider>/`. */
  readonly modelPrefixes: readonly string[];
  /** Whose key it needs, as configuration names it; `undefined` for none. */
  readonly access: 'anthropic' | 'openai' | 'google' | undefined;

  /** Hosts of the model API (or the gateway in its place) that a limited sandbox must reach. */
  apiHosts(access: ProviderAccess): string[];

  /** Files that hold the runtime's key, written in the stage `env_file`. */
  keyFiles(turn: RuntimeTurn): SandboxFile[];

  /** Files that announce the tool servers, written in the stage `mcp_config`. */
  mcpFiles(turn: RuntimeTurn): SandboxFile[];

  /** Folder in which this CLI looks for skills. Absolute. */
  skillsFolder(layout: SandboxLayout): string;

  /** How to run one turn. */
  launch(turn: RuntimeTurn): RuntimeLaunch;
}
