import type { AppConfig, ProviderAccess } from '../config/app-config.js';
import type { NpmProgram, SandboxFile, SandboxLayout } from '../sandboxes/driver/sandbox-driver.js';

/** A tool server as the agent's pinned version has it, with its secrets. */
export type McpServer =
  | { type: 'stdio'; name: string; command: string; args: string[]; env: Record<string, string> }
  | {
      type: 'http' | 'sse';
      name: string;
      url: string;
      headers: Record<string, string>;
      /** The variable with a grant, where the gateway adds the real headers. The program sends it as GRANT_HEADER. */
      grantVariable?: string;
    };

/** The header in which programs send a tool server's grant to the gateway. */
export const GRANT_HEADER = 'X-Session-Grant';

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
  /** As {@link AgentRuntime.resolveModel} gave it. */
  model: string;
  /** What the model reads; the system prompt already stands before the first turn's. */
  prompt: string;
  mcpServers: readonly McpServer[];
  skills: readonly Skill[];
  /** The address of the model's API inside of the sandbox, and a key that is only valid there. */
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

/** Whose API a model is reached by, as configuration names it. */
export type ModelApi = keyof AppConfig['providers'];

/** What a model's name means to a runtime. */
export interface ResolvedModel {
  /** The name that the program takes. */
  model: string;
  /** Whose key it needs; `undefined` for none. */
  api: ModelApi | undefined;
}

/** What a runtime's output has said so far about how the turn went. */
export interface Outcome {
  /** `done`: it says that it has done its work; `failed`: that it has not; absent: it has not said anything. */
  verdict?: 'done' | 'failed';
  /** The program's own reason for a failure. Not redacted, and not yet safe to store. */
  reason?: string;
}

/** How many tokens a program reports to have used, all kinds added up. */
export interface ReportedTokens {
  count: number;
  /** What the count covers; `session` includes all earlier turns. */
  of: 'step' | 'turn' | 'session';
}

/** What one line of a runtime's output says. */
export interface Judgement extends Outcome {
  tokens?: ReportedTokens;
}

/** What is known about a turn's outcome after some of its output, as it is kept with the turn's progress. */
export interface OutcomeState extends Outcome {
  /** The beginning of a line whose end has not come yet. */
  partial?: string;
  /** As the program reports them, those of steps added up. */
  tokens?: ReportedTokens;
  /** Something was too long to be judged, so that a missing verdict means nothing. */
  incomplete?: true;
}

/**
 * The port to one agent CLI. An implementation is pure: it says what to write and what to run, and others do it. A new
 * runtime is one file and a line in the registry; `test/contracts/agent-runtime.contract.ts` says what it lacks.
 */
export interface AgentRuntime {
  /** The provider's name in agents, canonical. */
  readonly provider: string;
  /** Other names that clients may use for it. */
  readonly aliases: readonly string[];
  /** A model belongs to this provider if it begins with one of these, or with `<provider>/`. */
  readonly modelPrefixes: readonly string[];
  /** Programs that the sandbox must have, the CLI itself first; none for what every sandbox has. */
  readonly programs: readonly NpmProgram[];
  /**
   * Variables by which its program takes keys and API addresses and finds its home: only the service sets them, and an
   * environment must not. Otherwise a client could have the operator's key sent to an address of their own.
   */
  readonly reservedVariables: readonly string[];

  /**
   * What to make of an agent's model, with the provider's own prefix already cut off.
   * @returns `undefined` for a model that this runtime cannot run
   */
  resolveModel(model: string): ResolvedModel | undefined;

  /** Files with the runtime's key and settings, written in the stage `env_file`. */
  settingsFiles(turn: RuntimeTurn): SandboxFile[];

  /** Files that announce the tool servers, written in the stage `mcp_config`; they may replace settings files. */
  mcpFiles(turn: RuntimeTurn): SandboxFile[];

  /** Folder in which this CLI looks for skills. Absolute. */
  skillsFolder(layout: SandboxLayout): string;

  /** How to run one turn. */
  launch(turn: RuntimeTurn): RuntimeLaunch;

  /**
   * Reads a line that the program wrote to its standard output for what it says about the outcome and about the tokens
   * that were used. The last verdict counts. Absent for programs of which only the exit code is known.
   */
  judge?(line: string): Judgement | undefined;
}
