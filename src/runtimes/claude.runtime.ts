import type { SandboxFile, SandboxLayout } from '../sandboxes/sandbox-driver.js';
import type {
  AgentRuntime,
  McpServer,
  Outcome,
  RuntimeLaunch,
  RuntimeTurn,
} from './agent-runtime.js';
import { CLAUDE_CODE } from './cli-pins.js';
import { parseEvent, textAt } from './json-event.js';
import { MODEL_APIS, onlyApi, withoutVersion } from './model-api.js';
import { defined, keyFile, plainPrompt, privateJson } from './settings.js';

/** Claude Code. */
export class ClaudeRuntime implements AgentRuntime {
  readonly provider = 'anthropic';
  readonly aliases = ['claude'];
  readonly modelPrefixes = MODEL_APIS.anthropic.modelPrefixes;
  readonly programs = [CLAUDE_CODE];
  readonly resolveModel = onlyApi('anthropic');

  settingsFiles({ layout, access }: RuntimeTurn): SandboxFile[] {
    return [keyFile(layout, defined({ ANTHROPIC_API_KEY: access.apiKey }))];
  }

  mcpFiles({ layout, mcpServers }: RuntimeTurn): SandboxFile[] {
    const servers = Object.fromEntries(mcpServers.map((server) => [server.name, describe(server)]));
    return [privateJson(mcpPath(layout), { mcpServers: servers })];
  }

  skillsFolder({ home }: SandboxLayout): string {
    return `${home}/.claude/skills`;
  }

  launch({
    turnNumber,
    sessionId,
    model,
    prompt,
    mcpServers,
    access,
    layout,
  }: RuntimeTurn): RuntimeLaunch {
    return {
      command: [
        'claude',
        '-p',
        '--model',
        model,
        '--output-format',
        'stream-json',
        '--verbose',
        '--permission-mode',
        'bypassPermissions',
        '--strict-mcp-config',
        ...(mcpServers.length > 0 ? ['--mcp-config', mcpPath(layout)] : []),
        turnNumber === 1 ? '--session-id' : '--resume',
        sessionId,
      ],
      env: defined({
        ANTHROPIC_API_KEY: access.apiKey,
        ANTHROPIC_BASE_URL:
          access.baseUrl === undefined ? undefined : withoutVersion(access.baseUrl),
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
        DISABLE_AUTOUPDATER: '1',
        CLAUDE_CODE_MAX_RETRIES: '3',
        // The agent's model, not what the program would rather take.
        CLAUDE_CODE_DISABLE_LEGACY_MODEL_REMAP: '1',
        // Tools of MCP servers are told to the model at once, not on its request.
        ENABLE_TOOL_SEARCH: 'false',
        // A root that is only root of its sandbox may skip permissions.
        IS_SANDBOX: '1',
      }),
      stdin: plainPrompt(prompt),
    };
  }

  judge(line: string): Outcome | undefined {
    const event = parseEvent(line);
    if (event?.['type'] !== 'result') return undefined;
    if (event['is_error'] !== true && event['subtype'] === 'success') return { verdict: 'done' };
    const reason = textAt(event, 'result') ?? textAt(event, 'subtype');
    return { verdict: 'failed', reason };
  }
}

function mcpPath({ home }: SandboxLayout): string {
  return `${home}/.claude/mcp-servers.json`;
}

function describe(server: McpServer): Record<string, unknown> {
  const { name: _name, ...settings } = server;
  return settings;
}
