import type { SandboxFile } from '../sandboxes/driver/sandbox-driver.js';
import type { AgentRuntime, ResolvedModel, RuntimeLaunch, RuntimeTurn } from './agent-runtime.js';
import { mcpJson, privateJson } from './runtime-support.js';

/** Reads the whole script before it runs a line of it, so that the script's commands cannot eat it from stdin. */
const RUN_STDIN = 'script=$(cat) && exec </dev/null && eval "$script"';

/** Runs the prompt as a bash script: no model, no key, real processes. */
export class ShellRuntime implements AgentRuntime {
  readonly provider = 'shell';
  readonly aliases = [];
  readonly modelPrefixes = ['shell/'];
  readonly programs = [];
  readonly reservedVariables = [];

  resolveModel(model: string): ResolvedModel {
    return { model, api: undefined };
  }

  settingsFiles(): [] {
    return [];
  }

  mcpFiles(turn: RuntimeTurn): SandboxFile[] {
    return [privateJson(`${turn.layout.home}/.mcp.json`, mcpJson(turn.mcpServers))];
  }

  skillsFolder(layout: { home: string }): string {
    return `${layout.home}/.agents/skills`;
  }

  launch(turn: RuntimeTurn): RuntimeLaunch {
    return { command: ['bash', '-c', RUN_STDIN], env: {}, stdin: turn.prompt };
  }
}
