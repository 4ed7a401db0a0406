import type { SandboxFile, SandboxLayout } from '../sandboxes/driver/sandbox-driver.js';
import type { AgentRuntime, Judgement, RuntimeLaunch, RuntimeTurn } from './agent-runtime.js';
import { CLAUDE_CODE } from './cli-pins.js';
import {
  parseEvent,
  reported,
  textAt,
  tokensIn,
  MODEL_APIS,
  onlyApi,
  withoutVersion,
  defined,
  mcpJson,
  keyFile,
  plainPrompt,
  privateJson,
} from './runtime-support.js';

/** The counts of tokens that the program reports for each model. */
const TOKENS = [
  'inputTokens',
  'outputTokens',
  'cacheReadInputTokens',
  'cacheCreationInputTokens',
] as const;

/** Claude Code. */
export class ClaudeRuntime implements AgentRuntime {
  readonly provider = 'anthropic';
  readonly aliases = ['claude'];
  readonly modelPrefixes = MODEL_APIS.anthropic.modelPrefixes;
  readonly programs = [CLAUDE_CODE];
  readonly reservedVariables = [
    'ANTHROPIC_API_KEY',
    'ANTHROPIC_AUTH_TOKEN',
    'ANTHROPIC_BASE_URL',
    'ANTHROPIC_CONFIG_DIR',
    'ANTHROPIC_UNIX_SOCKET',
    'CLAUDE_CODE_API_BASE_URL',
    'CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR',
    'CLAUDE_CODE_OAUTH_TOKEN',
    'CLAUDE_CONFIG_DIR',
    'CLAUDE_SECURESTORAGE_CONFIG_DIR',
  ];
  readonly resolveModel = onlyApi('anthropic');

  settingsFiles({ layout, access }: RuntimeTurn): SandboxFile[] {
    return [keyFile(layout, defined({ ANTHROPIC_API_KEY: access.apiKey }))];
  }

  mcpFiles({ layout, mcpServers }: RuntimeTurn): SandboxFile[] {
    return [privateJson(mcpPath(layout), mcpJson(mcpServers))];
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

  judge(line: string): Judgement | undefined {
    const event = parseEvent(line);
    if (event?.['type'] !== 'result') return undefined;
    // A resumed session goes on counting; the event's own `usage` leaves the small models out.
    const used = reported(tokensOfModels(event['modelUsage']), 'session');
    if (event['is_error'] !== true && event['subtype'] === 'success')
      return { verdict: 'done', ...used };
    const reason = textAt(event, 'result') ?? textAt(event, 'subtype');
    return { verdict: 'failed', reason, ...used };
  }
}

/** All models: the program also asks small ones, for titles and summaries. */
function tokensOfModels(usage: unknown): number | undefined {
  if (typeof usage !== 'object' || usage === null) return undefined;
  const counts = Object.values(usage).flatMap((each) => tokensIn(each, TOKENS) ?? []);
  return counts.length === 0 ? undefined : counts.reduce((sum, count) => sum + count, 0);
}

function mcpPath({ home }: SandboxLayout): string {
  return `${home}/.claude/mcp-servers.json`;
}
