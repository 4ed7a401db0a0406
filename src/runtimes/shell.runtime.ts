import type { AgentRuntime, ResolvedModel, RuntimeLaunch, RuntimeTurn } from './agent-runtime.js';

/** Reads the whole script before it runs a line of it, so that the script's commands cannot eat it from stdin. */
const RUN_STDIN = 'script=$(cat) && exec </dev/null && eval "$script"';

/** Runs the prompt as a bash script: no model, no key, real processes. */
export class ShellRuntime implements AgentRuntime {
  readonly provider = 'shell';
  readonly aliases = [];
  readonly modelPrefixes = ['shell/'];
  readonly programs = [];

  resolveModel(model: string): ResolvedModel {
    return { model, api: undefined };
  }

  settingsFiles(): [] {
    return [];
  }

  mcpFiles(turn: RuntimeTurn): { path: string; content: string; mode: number }[] {
    const servers = Object.fromEntries(
      turn.mcpServers.map(({ name, ...server }) => [name, server]),
    );
    return [
      {
        path: `${turn.layout.home}/.mcp.json`,
        content: JSON.stringify({ mcpServers: servers }, null, 2),
        mode: 0o600,
      },
    ];
  }

  skillsFolder(layout: { home: string }): string {
    return `${layout.home}/.agents/skills`;
  }

  launch(turn: RuntimeTurn): RuntimeLaunch {
    return { command: ['bash', '-c', RUN_STDIN], env: {}, stdin: turn.prompt };
  }
}
